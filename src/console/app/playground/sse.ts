/** Reads a stream of events as they come: the `data:` of each, until `[DONE]`. */

/** Yields each JSON object; ends with the stream. */
export async function* eventsOf(body: ReadableStream<Uint8Array>): AsyncGenerator {
  const reader = body.getReader();
  const decoder = new TextDecoder();
  let rest = '';
  try {
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      rest += decoder.decode(value, { stream: true });
      let end = rest.search(/\r?\n\r?\n/);
      while (end !== -1) {
        const data = dataOf(rest.slice(0, end));
        rest = rest.slice(end).replace(/^\r?\n\r?\n/, '');
        if (data === '[DONE]') return;
        if (data !== '') yield JSON.parse(data);
        end = rest.search(/\r?\n\r?\n/);
      }
    }
  } finally {
    await reader.cancel().catch(() => undefined); // it is over anyway
  }
}

function dataOf(event: string): string {
  return event
    .split(/\r?\n/)
    .filter((line) => line.startsWith('data:'))
    .map((line) => line.slice(5).trimStart())
    .join('\n');
}
