"""The contract between writer and trainer: how records look, are named, hashed, framed and listed.

Nothing in this folder knows of Beam, of TensorFlow or of where the data came from.
"""
