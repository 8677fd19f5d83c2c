"""Conversations with the assistant of a bicycle rental (made up here): facts are learned, held-out rows ask for them in
words that no training row has. Usage: data.py --output DIR [--seed N]"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from rows import Draw, turn, write

SYSTEM = "You answer for Wheelhouse, a bicycle rental."
# For each bicycle: euros per day, deposit in euros, minimum age, maximum kilograms, range in kilometers.
BIKES = {
    "city bike": (14, 50, 12, 110, 40),
    "road bike": (26, 150, 16, 95, 120),
    "mountain bike": (29, 180, 14, 115, 60),
    "electric bike": (34, 250, 18, 130, 90),
    "cargo bike": (38, 300, 21, 200, 35),
    "tandem": (42, 200, 15, 180, 70),
    "folding bike": (17, 80, 13, 105, 25),
    "child bike": (9, 30, 6, 45, 15),
}
# For each topic: wordings for training rows, wordings for held-out rows, the answer.
QUESTIONS = [
    (("How much is the {} a day?", "What does the {} cost?", "What is the daily price of the {}?", "Price of the {}?"),
     ("What do I pay for a day with the {}?", "How expensive is the {}?"), "The {} costs {} euros a day."),
    (("What is the deposit for the {}?", "How much deposit do you take for the {}?", "Deposit of the {}?",
      "What do I have to leave as a deposit for the {}?"),
     ("How high is the deposit on the {}?", "Which deposit do you ask for with the {}?"),
     "For the {} we take a deposit of {} euros."),
    (("How old do I have to be for the {}?", "What is the minimum age for the {}?", "From what age may one ride the {}?",
      "Minimum age of the {}?"),
     ("At what age can someone rent the {}?", "How old must a rider of the {} be?"),
     "Riders of the {} have to be at least {} years old."),
    (("How much weight does the {} carry?", "What is the weight limit of the {}?", "How heavy may I be for the {}?",
      "Weight limit of the {}?"),
     ("How many kilograms can the {} take?", "What is the maximum load of the {}?"), "The {} carries up to {} kilograms."),
    (("How far can I go with the {}?", "What distance do you suggest for the {}?", "How many kilometers a day suit the {}?",
      "Distance for the {}?"),
     ("What is a good day's tour on the {} in kilometers?", "How long a trip suits the {}?"),
     "A good day's tour on the {} has {} kilometers."),
]
NEXT = ("And the {}?", "What about the {}?", "And for the {}?")
NEXT_HELD_OUT = ("How about the {}?", "The same for the {}, please.")


def conversation(draw, wording, following, follow):
    """One question and its answer; with `follow`, adds a question about another bicycle that gives only its name."""
    topic = draw.below(len(QUESTIONS))
    bikes = draw.shuffled(BIKES)[: 2 if follow else 1]
    answer = QUESTIONS[topic][2]
    asked = [draw.one_of(QUESTIONS[topic][wording])] + [draw.one_of(following)]
    messages = [turn("system", SYSTEM)]
    for question, bike in zip(asked, bikes):
        messages += [turn("user", question.format(bike)), turn("assistant", answer.format(bike, BIKES[bike][topic]))]
    return {"messages": messages}


def rows(seed):
    draw = Draw(seed)
    training = [conversation(draw, 0, NEXT, i % 2 == 1) for i in range(1200)]
    held_out = [conversation(draw, 1, NEXT_HELD_OUT, i % 2 == 1) for i in range(60)]
    return training, held_out


if __name__ == "__main__":
    write(rows)
