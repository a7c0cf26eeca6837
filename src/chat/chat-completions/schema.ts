/**
 * What `/chat/completions` answers, and what it says of itself. Engines may add members, so the
 * shapes are open; what is named here is always as it says.
 */
import { z } from 'zod';
import type { FaultCode } from '../../core/faults.ts';
import { type RouteDescription, jsonContent } from '../../http/describe.ts';
import { Cost } from '../../http/openapi/cost.ts';
import { MODEL_REFUSALS } from '../../http/openapi/refusals.ts';
import { ChatBody } from '../wire/chat-schema.ts';
import { SVC_PARAMETER_DEFAULTS } from '../wire/svc-parameters.ts';

const Count = z.int().min(0);

const ToolCall = z.looseObject({
  id: z.string(),
  type: z.literal('function'),
  function: z.looseObject({ name: z.string(), arguments: z.string().describe('JSON text') }),
});

const Message = z.looseObject({
  role: z.literal('assistant'),
  content: z.union([z.string(), z.null()]),
  reasoning_content: z.string().nullable(),
  tool_calls: z.array(ToolCall),
});

const FinishReason = z.enum(['stop', 'length', 'tool_calls', 'content_filter']);

const Usage = z
  .looseObject({
    prompt_tokens: Count,
    completion_tokens: Count.describe('Reasoning tokens included.'),
    total_tokens: Count,
    prompt_tokens_details: z
      .looseObject({ cached_tokens: Count, cache_creation_input_tokens: Count.optional() })
      .nullable(),
    completion_tokens_details: z.looseObject({ reasoning_tokens: Count }).nullable(),
  })
  .meta({ id: 'ChatUsage' });

const Citations = z
  .array(
    z.strictObject({
      title: z.string(),
      url: z.string(),
      content: z.string().optional(),
      date: z.string().optional(),
    }),
  )
  .describe('What a search found, in the order of the marks; empty when none ran.');

export const Echo = z
  .strictObject({
    enable_e2ee: z.boolean(),
    enable_web_search: z.enum(['off', 'on', 'auto']),
    enable_web_citations: z.boolean(),
    enable_web_scraping: z.boolean(),
    enable_x_search: z.boolean(),
    include_venice_system_prompt: z.boolean(),
    include_search_results_in_stream: z.boolean(),
    return_search_results_as_documents: z.boolean(),
    strip_thinking_response: z.boolean(),
    disable_thinking: z.boolean(),
    character_slug: z.string().optional(),
    web_search_citations: Citations,
  })
  .describe('The parameters that were in force.')
  .meta({ id: 'EffectiveParameters' });

const ChatCompletion = z
  .looseObject({
    id: z.string().regex(/^chatcmpl-[0-9a-f]{32}$/),
    object: z.literal('chat.completion'),
    created: z.int().describe('Unix time in seconds.'),
    model: z.string(),
    choices: z.array(
      z.looseObject({
        index: Count,
        finish_reason: FinishReason,
        logprobs: z.union([z.looseObject({}), z.null()]),
        stop_reason: z.unknown(),
        message: Message,
      }),
    ),
    usage: Usage,
    cost: Cost,
    prompt_logprobs: z.unknown(),
    svc_parameters: Echo,
  })
  .meta({ id: 'ChatCompletion' });

const Delta = z.looseObject({
  role: z.literal('assistant').nullish(),
  content: z.string().nullish(),
  reasoning_content: z.string().nullish(),
  tool_calls: z
    .array(
      z.looseObject({
        index: Count,
        id: z.string().nullish(),
        type: z.literal('function').nullish(),
        function: z
          .looseObject({ name: z.string().nullish(), arguments: z.string().nullish() })
          .optional(),
      }),
    )
    .nullish()
    .describe('Parts of calls; the texts of one `index` belong together.'),
});

const ChatCompletionEvent = z
  .looseObject({
    id: z.string().optional(),
    object: z.literal('chat.completion.chunk').optional(),
    created: z.int().optional(),
    model: z.string().optional(),
    choices: z
      .array(
        z.looseObject({
          index: Count,
          delta: Delta,
          finish_reason: FinishReason.nullable(),
        }),
      )
      .optional()
      .describe('Empty in the chunk that carries usage and cost.'),
    usage: Usage.nullable().optional(),
    cost: Cost.optional(),
    svc_parameters: z
      .union([Echo, z.strictObject({ web_search_citations: Citations })])
      .optional()
      .describe('Citations alone before the text, when they were asked for in the stream.'),
    error: z
      .looseObject({ message: z.string(), type: z.string() })
      .optional()
      .describe(
        'What went wrong after the first byte; a chunk with `cost` before it says what the text until then cost.',
      ),
  })
  .meta({ id: 'ChatCompletionEvent' });

const ID = 'chatcmpl-019aa3f1c0de4b7e8c1d2e3f4a5b6c7d';

export const ECHO_EXAMPLE = { ...SVC_PARAMETER_DEFAULTS, web_search_citations: [] };

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
  svc_parameters: ECHO_EXAMPLE,
};

const STREAM = `data: {"id":"${ID}","object":"chat.completion.chunk","created":1795233600,"model":"atlas-24b","choices":[{"index":0,"delta":{"role":"assistant","content":"Hello"},"finish_reason":null}]}

data: {"id":"${ID}","object":"chat.completion.chunk","created":1795233600,"model":"atlas-24b","choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}

data: [DONE]

`;

/** What a chat is refused with, in whatever protocol it comes. */
export const CHAT_REFUSALS: readonly FaultCode[] = [
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
];

export const CHAT_DESCRIPTION: RouteDescription = {
  tag: 'Chat',
  summary: 'Answer a conversation',
  about: `Works with every OpenAI client: set its base URL to this server. \`model\` takes an id, a trait such as \`default\`, or a compatibility name; suffixes set parameters: \`atlas-24b:enable_web_search=on\`.

With \`stream: true\` the answer is a stream of events. The last chunk before \`[DONE]\` carries \`usage\` and \`cost\`, asked for or not. An error after the first byte is an event with \`error\`; text that had come before it is paid for, and a chunk with \`usage\` and \`cost\` before the error says so.

The worst case of the request is set aside before it runs and the true cost is taken when it ends. A caller who leaves pays for what was produced until then.`,
  request: jsonContent(ChatBody.meta({ id: 'ChatCompletionRequest' }), {
    model: 'default',
    messages: [{ role: 'user', content: 'Hello' }],
  }),
  answers: [
    {
      status: 200,
      about: 'The answer, whole or as a stream.',
      headers: ['model', 'stream'],
      content: [
        ...jsonContent(ChatCompletion, ANSWER),
        {
          type: 'text/event-stream',
          schema: { type: 'string' },
          example: STREAM,
          events: ChatCompletionEvent,
        },
      ],
    },
  ],
  refusals: CHAT_REFUSALS,
};
