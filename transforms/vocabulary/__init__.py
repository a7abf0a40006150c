"""WordPiece vocabularies: word counts in bounded memory, and the learner."""
