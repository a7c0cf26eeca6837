/** Response of the benchmark upstreams to a non-streaming chat. */
const content = 'The quick brown fox jumps over the lazy dog. '.repeat(28);
/** A chat completion of 1.5 KB with its usage. */
export const ANSWER = Buffer.from(
  JSON.stringify({
    id: 'chatcmpl-upstream',
    object: 'chat.completion',
    created: 1_750_000_000,
    model: 'upstream-model',
    choices: [
      {
        index: 0,
        message: { role: 'assistant', content, reasoning_content: null, tool_calls: [] },
        finish_reason: 'stop',
        logprobs: null,
        stop_reason: null,
      },
    ],
    usage: { prompt_tokens: 200, completion_tokens: 300, total_tokens: 500 },
  }),
);
