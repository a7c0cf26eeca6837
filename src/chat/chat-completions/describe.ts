/** What `/chat/completions` says of itself. */
import { ChatBody } from '../wire/chat-schema.ts';
import { SVC_PARAMETER_DEFAULTS } from '../wire/svc-parameters.ts';
import type { RouteDescription } from '../../http/describe.ts';
import { MODEL_REFUSALS } from '../../http/openapi/refusals.ts';
import { ChatCompletion, ChatCompletionEvent } from './schema.ts';

const ID = 'chatcmpl-019aa3f1c0de4b7e8c1d2e3f4a5b6c7d';

const ANSWER = {
  id: ID,
  object: 'chat.completion',
  created: 1795233600,
  model: 'atlas-24b',
  choices: [
    {
      index: 0,
      finish_reason: 'stop',
      logprobs: null,
      stop_reason: null,
      message: {
        role: 'assistant',
        content: 'Hello! How can I help?',
        reasoning_content: null,
        tool_calls: [],
      },
    },
  ],
  usage: {
    prompt_tokens: 9,
    completion_tokens: 7,
    total_tokens: 16,
    prompt_tokens_details: null,
    completion_tokens_details: null,
  },
  cost: { usd: 0.0000111, diem: 0 },
  prompt_logprobs: null,
  svc_parameters: { ...SVC_PARAMETER_DEFAULTS, web_search_citations: [] },
};

const STREAM = `data: {"id":"${ID}","object":"chat.completion.chunk","created":1795233600,"model":"atlas-24b","choices":[{"index":0,"delta":{"role":"assistant","content":"Hello"},"finish_reason":null}]}

data: {"id":"${ID}","object":"chat.completion.chunk","created":1795233600,"model":"atlas-24b","choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}

data: [DONE]

`;

export const CHAT_DESCRIPTION: RouteDescription = {
  tag: 'Chat',
  summary: 'Answer a conversation',
  about: `Works with every OpenAI client: set its base URL to this server. \`model\` takes an id, a trait such as \`default\`, or a compatibility name; suffixes set parameters: \`atlas-24b:enable_web_search=on\`.

With \`stream: true\` the answer is a stream of events. The last chunk before \`[DONE]\` carries \`usage\` and \`cost\`, asked for or not. An error after the first byte is an event with \`error\`; text that had come before it is paid for, and a chunk with \`usage\` and \`cost\` before the error says so.

The worst case of the request is set aside before it runs and the true cost is taken when it ends. A caller who leaves pays for what was produced until then.`,
  request: [
    {
      type: 'application/json',
      schema: ChatBody.meta({ id: 'ChatCompletionRequest' }),
      example: { model: 'default', messages: [{ role: 'user', content: 'Hello' }] },
    },
  ],
  answers: [
    {
      status: 200,
      about: 'The answer, whole or as a stream.',
      headers: ['model', 'stream'],
      content: [
        { type: 'application/json', schema: ChatCompletion, example: ANSWER },
        {
          type: 'text/event-stream',
          schema: { type: 'string' },
          example: STREAM,
          events: ChatCompletionEvent,
        },
      ],
    },
  ],
  refusals: [
    ...MODEL_REFUSALS,
    'CONTEXT_LENGTH_EXCEEDED',
    'UNSAFE_URL',
    'FETCH_FAILED',
    'CORRUPTED_IMAGE',
    'IMAGE_TOO_SMALL',
    'IMAGE_TOO_LARGE',
    'INVALID_AUDIO_FORMAT',
    'INVALID_VIDEO_FORMAT',
    'CHARACTER_NOT_FOUND',
  ],
};
