"""What is done to a pod, decided on plain dictionaries: no API, no server, no clock.

names.py         labels, annotations, paths and names that stand in a pod
policy.py        what is to be brought and said: Policy; from where a pod comes: Admission
canary.py        which jobs are stitched, if a share of them is to be
pauses.py        where the payload could not be pulled, and how long injection pauses there
roster.py        what there is to do and to say about the pods that carry the label
precedence.py    StitchPolicy objects: which is in effect, and what it changes
mutate.py        `mutate(pod, policy, admission)`, the whole of it
patch.py         the JSON patch that the API server applies
refusals.py      pods and containers that are left alone, each with the reason that the pod then shows
python_path.py   how Python finds us in a container without losing what the image or the user set
starter/         what starts a command with a longer PYTHONPATH: a script, or a program for images without a shell
payload.py       the init container that copies the payload, and the volumes
release.py       what lets a pod go whose payload cannot be pulled
launcher.py      how the ranks of an MPI job get what their pods were given
templates.py     what an object that makes pods has to bring to their templates
mpijob.py        `mutate_mpijob(job, policy, admission)`
trainjob.py      `mutate_trainjob` and `mutate_jobset`
identity.py      the variables by which the job knows who it is, from telemetry's one table
"""
