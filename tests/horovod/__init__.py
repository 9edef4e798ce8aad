"""Jobs of several ranks under Horovod. installation: Horovod, built once against the tests' TensorFlow; conftest: jobs of it."""
