"""TF-Agents: updates of DQN, SAC and PPO agents on made-up experience."""

import numpy as np
from job import integers, normal, options, steps, tf
from tf_agents.agents.ddpg import critic_network
from tf_agents.agents.dqn import dqn_agent
from tf_agents.agents.ppo import ppo_clip_agent
from tf_agents.agents.sac import sac_agent, tanh_normal_projection_network
from tf_agents.networks import actor_distribution_network, q_network, value_network
from tf_agents.specs import tensor_spec
from tf_agents.trajectories import time_step, trajectory

arguments = options("dqn", "sac", "ppo")
observation = tensor_spec.TensorSpec([32], tf.float32)
times = time_step.time_step_spec(observation)
batch, width = 128, (256, 256)
adam = tf.keras.optimizers.legacy.Adam(3e-4)
if arguments.model == "dqn":
    action = tensor_spec.BoundedTensorSpec([], tf.int32, 0, 5)
    network = q_network.QNetwork(observation, action, fc_layer_params=width)
    agent = dqn_agent.DdqnAgent(
        times, action, network, adam, td_errors_loss_fn=tf.compat.v1.losses.huber_loss, target_update_tau=0.01
    )
    actions, info, length = integers(6, batch, 2), (), 2
elif arguments.model == "sac":
    action = tensor_spec.BoundedTensorSpec([6], tf.float32, -1.0, 1.0)
    actor = actor_distribution_network.ActorDistributionNetwork(
        observation,
        action,
        fc_layer_params=width,
        continuous_projection_net=tanh_normal_projection_network.TanhNormalProjectionNetwork,
    )
    critic = critic_network.CriticNetwork((observation, action), joint_fc_layer_params=width)
    agent = sac_agent.SacAgent(
        times,
        action,
        critic_network=critic,
        actor_network=actor,
        actor_optimizer=adam,
        critic_optimizer=tf.keras.optimizers.legacy.Adam(3e-4),
        alpha_optimizer=tf.keras.optimizers.legacy.Adam(3e-4),
        target_update_tau=0.005,
        gamma=0.99,
    )
    actions, info, length = np.tanh(normal(batch, 2, 6)), (), 2
else:
    action = tensor_spec.BoundedTensorSpec([6], tf.float32, -1.0, 1.0)
    actor = actor_distribution_network.ActorDistributionNetwork(observation, action, fc_layer_params=width)
    value = value_network.ValueNetwork(observation, fc_layer_params=width)
    agent = ppo_clip_agent.PPOClipAgent(times, action, adam, actor, value, num_epochs=4, gradient_clipping=0.5)
    batch, length = 16, 64
    actions = np.clip(normal(batch, length, 6), -1.0, 1.0)
    info = {
        "dist_params": {
            "loc": np.zeros([batch, length, 6], np.float32),
            "scale": np.ones([batch, length, 6], np.float32),
        }
    }
agent.initialize()
shape = [batch, length]
rewards, ones = normal(*shape), np.ones(shape, np.float32)
experience = trajectory.Trajectory(
    step_type=np.ones(shape, np.int32),
    observation=normal(*shape, 32),
    action=actions,
    policy_info=info,
    next_step_type=np.ones(shape, np.int32),
    reward=rewards,
    discount=ones,
)
experience = tf.nest.map_structure(tf.constant, experience)
update = tf.function(lambda experience: agent.train(experience).loss, jit_compile=arguments.xla or None)
steps.run(update, ((experience,) for _ in range(arguments.steps)), arguments)
