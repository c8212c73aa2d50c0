"""The strategy `chat`: one turn of a conversation, in which the model speaks, calls tools, and speaks on."""
