"""What depends on the version of TensorFlow, Keras and Python.

known       the versions that stitchfleet was tested with; what to do with another one
places      where each version has the classes and functions that we use
self_test   tries the mechanisms on a version that nobody has tested, in processes of its own (self_test_job is
            the job that they run)

All other code is the same for all versions. What only some versions have is requested here, and is found by looking for it,
not by the version's number.
"""
