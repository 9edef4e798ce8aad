"""What every part of the plugin stands on.

settings      what a job may set, each with its help
containment   an exception of ours never reaches the job; what is said to people
event_log     where the parts of a job say what happened
tf_version    where TensorFlow's own classes live in which version; wrapping puts ours around their methods
gpus          which GPUs there are; memory_watch: resident memory; descendants: a process's children
"""
