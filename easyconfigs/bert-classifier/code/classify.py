"""Train BERT to tell classes of texts apart: `classify train.csv valid.csv`, columns `label` and `text`."""

import argparse
import csv

import torch
from sklearn.metrics import classification_report
from transformers import AutoModelForSequenceClassification, AutoTokenizer


def read(path):
    with open(path, newline="") as file:
        rows = list(csv.DictReader(file))
    return [row["text"] for row in rows], torch.tensor([int(row["label"]) for row in rows])


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("train")
    parser.add_argument("valid")
    parser.add_argument("--model", default="bert-base-uncased", help="a name of the Hugging Face Hub, or a directory")
    parser.add_argument("--epochs", type=int, default=1)
    parser.add_argument("--output", default="model")
    given = parser.parse_args()
    texts, labels = read(given.train)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    tokenizer = AutoTokenizer.from_pretrained(given.model)
    model = AutoModelForSequenceClassification.from_pretrained(given.model, num_labels=int(labels.max()) + 1)
    model.to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-5)

    def outputs(some, **more):
        words = tokenizer(some, truncation=True, max_length=128, padding=True, return_tensors="pt")
        return model(**words.to(device), **more)

    for epoch in range(given.epochs):
        model.train()
        for chosen in torch.randperm(len(texts)).split(16):
            loss = outputs([texts[i] for i in chosen], labels=labels[chosen].to(device)).loss
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(f"epoch {epoch + 1} of {given.epochs}: loss {loss.item():.4f}", flush=True)

    model.eval()
    texts, labels = read(given.valid)
    with torch.no_grad():
        found = [outputs(texts[n : n + 16]).logits.argmax(1).cpu() for n in range(0, len(texts), 16)]
    print(classification_report(labels, torch.cat(found), digits=4, zero_division=0))
    model.save_pretrained(given.output)
    tokenizer.save_pretrained(given.output)


main()
