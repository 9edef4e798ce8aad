"""What is done to a pod, decided on plain dictionaries: no API, no server, no clock.

names.py         labels, annotations, paths and names in a pod
policy.py        Policy: what to bring into pods; Admission: where a pod comes from
canary.py        which jobs are stitched, if only a share of them is to be
pauses.py        where the payload could not be pulled, and how long injection pauses there
roster.py        what to do with, and what to report about, the pods that carry the label
precedence.py    StitchPolicy objects: which is in effect, and what it changes
mutate.py        `mutate(pod, policy, admission)`, the complete change
patch.py         the JSON patch that the API server applies
refusals.py      pods and containers that are left alone, each with the reason that the pod then shows
python_path.py   how Python finds stitchfleet in a container without losing what the image or the user set
starter/         starts a command with a longer PYTHONPATH: a script, or a program for images without a shell
payload.py       the init container that copies the payload, and the volumes
release.py       the patch that releases a pod whose payload cannot be pulled
launcher.py      how the ranks of an MPI job get the environment of their pods
templates.py     what an object that makes pods has to pass to their templates
mpijob.py        `mutate_mpijob(job, policy, admission)`
trainjob.py      `mutate_trainjob` and `mutate_jobset`
identity.py      the variables that identify the job, from telemetry's one table
"""
