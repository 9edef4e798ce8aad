"""The project's images and how they are built (build.py): payload, operator, and a demo training image."""
