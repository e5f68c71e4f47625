"""`holdfast status`: `view` asks the daemons, `problems` judges their answers, `page` is the command and prints."""
