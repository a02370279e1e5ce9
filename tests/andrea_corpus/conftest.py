"""Real files: an fsync takes as long as it takes, so hypothesis times nothing here."""

from hypothesis import settings

settings.register_profile("real files", deadline=None)
settings.load_profile("real files")
