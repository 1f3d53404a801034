from tests.backend.scripted_agent import patient_settings as settings
from tests.backend.scripted_agent import scene

__all__ = ["scene", "settings"]
