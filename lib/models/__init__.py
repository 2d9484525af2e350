"""Who answers: receivers, their weights and their tokens."""

from lib.models.choose import open_receiver
from lib.models.receiver import Prompt, Receiver, Reply, Turn
from lib.models.scripted import ScriptedReceiver

__all__ = ["Prompt", "Receiver", "Reply", "ScriptedReceiver", "Turn", "open_receiver"]
