"""OCP + method -> Transcription: every intermediate as a value, and the way back to a `Solution`."""

from nosnoc_py.transcription.again import Answer
from nosnoc_py.transcription.reformulate import gap_rate_of, rest_velocity_of
from nosnoc_py.transcription.transcribe import transcribe, transcribe_step
from nosnoc_py.transcription.transcription import Transcription

__all__ = ["Answer", "Transcription", "gap_rate_of", "rest_velocity_of", "transcribe", "transcribe_step"]
