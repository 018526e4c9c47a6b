// The lines of a streamed answer, as they arrive: watches and logs.
/** A line of JSON or of a log is never longer than this many characters; a longer one ends the stream. */
const LONGEST = 16 << 20;

export async function* linesOf(answer: Response): AsyncGenerator<string> {
  const reader = answer.body?.pipeThrough(new TextDecoderStream()).getReader();
  if (!reader) return;
  let rest = "";
  try {
    for (;;) {
      const { done, value } = await reader.read();
      if (done) break;
      const lines = (rest + value).split("\n");
      rest = lines.pop() ?? "";
      if (rest.length > LONGEST) throw new Error("a line is too long");
      for (const line of lines) if (line) yield line;
    }
    if (rest) yield rest;
  } finally {
    await reader.cancel().catch(() => undefined);
  }
}
