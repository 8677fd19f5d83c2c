"""Messages of customers to a shop and the department that each is for: 24 messages of each, written by hand for this
example. The last six of each are held out. Usage: data.py --output DIR [--seed N]"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from rows import Draw, turn, write

MESSAGES = {
    "delivery": """My parcel has not arrived yet.
When will my package get here?
The tracking page has not changed for four days.
The courier left the box at the wrong house.
Can you send it to my office instead?
It says delivered but there is nothing at my door.
How long does shipping to Norway take?
I was at home and nobody rang the bell.
Has my order left your warehouse?
Please hold the parcel until Monday.
The driver could not find my street.
Can I collect the parcel at the post office?
My order was split and only half of it came.
Which carrier brings the furniture?
The estimated arrival was last Tuesday.
I gave the wrong house number for the shipment.
Is express shipping possible on a Saturday?
The package is stuck at customs.
The van never came although I waited all day.
Where is my shipment now?
Could the courier leave the parcel with my neighbor?
Do you ship to the islands?
The tracking number you sent me does not work.
I am still waiting for the box that you posted two weeks ago.""",
    "billing": """You charged my card twice.
I need an invoice with my company's address.
The amount on my bank statement is higher than the price.
My voucher was not taken off the total.
Can I pay in three installments?
Why was I billed for shipping when it was free?
My payment was declined but the money is gone.
Please send me the receipt for my taxes.
There is a fee on my bill that I do not understand.
Which payment methods do you accept?
The tax on the invoice is wrong.
You took money for an order that I never placed.
I want to change the credit card for my subscription.
The discount code gives an error at the checkout.
How do I get a copy of an old invoice?
Your reminder says I have not paid, but I have.
The price in the cart and on the bill differ.
Can you debit another bank account?
I was charged in dollars and not in euros.
My bill lists an item twice.
May I pay by bank transfer?
The invoice has the wrong company name.
A late fee was charged although I paid on time.
How much of my last payment was tax?""",
    "returns": """I would like to send the shoes back.
The jacket is too small, can I exchange it?
How many days do I have to return an item?
Where do I find a return label?
The lamp arrived broken and I want a replacement.
I do not like the color, please take it back.
Do I need the original box for a return?
I sent the coat back, have you received it?
You sent me a blue shirt and I ordered a green one.
Can I swap the trousers for a larger size?
Who pays the postage if I send something back?
One of the cups has a crack, I want another.
I opened the box, can I still return it?
My gift was given to me twice, can I hand one back?
I changed my mind and want to give the chair back.
Can I bring the return to one of your stores?
The wrong book was in the box, what do I do with it?
The mixer stopped after a day, please exchange it.
These gloves do not fit and I want to send them back.
Please exchange the vase, it came in pieces.
Is it too late to return a sweater from last month?
I want a larger ring in exchange for this one.
The return label does not print.
Did the skirt that I sent back reach you?""",
    "account": """I forgot my password.
How do I change my email address?
Please delete my account.
I cannot log in since yesterday.
My account was locked after three attempts.
I do not get the code to confirm my sign in.
How can I change the name in my profile?
Someone else logged in to my account.
I have two accounts and want to merge them.
Please take me off your newsletter.
The link to reset my password has expired.
How do I register as a company?
Which data about me do you keep?
I want to turn on sign in with two steps.
My user name is misspelled.
Can my wife and I share one login?
I no longer have the phone number that I signed up with.
How do I close my profile?
It says that my password is wrong, but it is not.
I would like to sign up with another email.
Please erase all my personal data.
My login was taken over by a stranger.
How do I see who signed in to my profile?
I never got the email to confirm my registration.""",
    "product": """Does this lamp come with a bulb?
Is the table made of solid oak?
How long does the battery of the speaker last?
Will the red sofa be available again?
Which size is right for a person of 180 centimeters?
Can the pan go into the dishwasher?
Is the jacket waterproof?
What is the difference between the two vacuum cleaners?
Does the tent have room for four?
How heavy is the bicycle?
Do you have this shirt in yellow?
Is the toy safe for a child of two?
Does the printer work with any computer?
How loud is the washing machine?
What are the cushions filled with?
Can I use the charger in Japan?
Is the desk adjustable in height?
Which wood is the shelf made of?
How wide is the wardrobe?
Is the backpack big enough for a laptop?
Does the kettle switch itself off?
Do the curtains keep out the light?
Can the watch be worn while swimming?
Is this coffee suitable for an espresso machine?""",
}
HELD_OUT = 6
SYSTEM = "Sort the message: delivery, billing, returns, account or product."
GREETINGS = ("", "", "Hello. ", "Hi there! ", "Good morning. ", "Dear team, ")
ENDINGS = ("", "", " Thanks.", " Thank you for your help.", " Please answer soon.")


def row(draw, message, label):
    text = draw.one_of(GREETINGS) + message + draw.one_of(ENDINGS)
    return {"prompt": [turn("system", SYSTEM), turn("user", text)], "completion": [turn("assistant", label)]}


def rows(seed):
    draw = Draw(seed)
    training, held_out = [], []
    for label, text in MESSAGES.items():
        messages = text.splitlines()
        training += [(message, label) for message in messages[:-HELD_OUT]]
        held_out += [(message, label) for message in messages[-HELD_OUT:]]
    made = [row(draw, *case) for _ in range(6) for case in draw.shuffled(training)]
    return made, [row(draw, *case) for case in draw.shuffled(held_out)]


if __name__ == "__main__":
    write(rows)
