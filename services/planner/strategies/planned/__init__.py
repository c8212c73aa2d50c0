"""The strategy `planned`: a plan, its execution, the answer. One request to the model without tools, two with."""
