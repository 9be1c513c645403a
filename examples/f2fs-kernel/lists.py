"""What `tree` prints: lists, and what was said to be durable."""


class Failed(Exception):
    """A case failed, for this reason."""


def lines_of(text):
    """The lines of a list by path."""
    return {line.split("\t", 1)[0]: line for line in text.splitlines()}


def compare(ours, theirs):
    """Two lists are the same, as `tree list` prints them."""
    ours, theirs = lines_of(ours), lines_of(theirs)
    paths = sorted(ours.keys() | theirs.keys())
    different = [path for path in paths if ours.get(path) != theirs.get(path)]
    if different:
        shown = "\n".join(f"  ours   {ours.get(path)}\n  theirs {theirs.get(path)}" for path in different[:5])
        raise Failed(f"{len(different)} of {len(ours)} names differ:\n{shown[:3000]}")
    return len(ours)


class Claims:
    """What `tree sync` said: for each path, its last word on it and where it stands, None for gone."""

    def __init__(self, text):
        self.said, self.begun = {}, {}
        # The last line may be incomplete.
        for nth, line in enumerate(text.split("\n")[:-1]):
            word, _, rest = line.rstrip("\r").partition("\t")
            path = rest.split("\t", 1)[0]
            if word == "begin":
                self.begun[path] = nth
            elif word in ("done", "data", "gone"):
                self.said[path] = (nth, word, rest)

    def check(self, found, later):
        """What is found holds all that was said, but for what `later` had begun to change; how many files are held."""
        found, wrong, held = lines_of(found), [], 0
        for path, (nth, word, line) in sorted(self.said.items()):
            if later.begun.get(path, -1) > nth:
                continue
            there = found.get(path)
            if word == "data" and there:
                # fdatasync promises no times: the fields from 7 to 9.
                there, line = (self.without_times(one) for one in (there, line))
            if there != (None if word == "gone" else line):
                wrong.append(f"  said {word} {line}\n  is   {there}")
            held += word != "gone"
        if wrong:
            shown = "\n".join(wrong[:4])
            raise Failed(f"{len(wrong)} of {len(self.said)} are not as they were synchronised:\n{shown}")
        return held

    @staticmethod
    def without_times(line):
        fields = line.split("\t")
        return fields[:7] + fields[10:]
