"""The paper's figures, drawn from the records of scale cpu: what each shows, how panels are drawn, and methods' colours."""
