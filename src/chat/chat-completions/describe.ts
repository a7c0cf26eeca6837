/**
 * The OpenAPI description of `/chat/completions`. Objects are open, because engines may add
 * members.
 */
import * as z from 'zod';
import type { FaultCode } from '../../core/faults.ts';
import { type RouteDescription, eventContent, jsonContent } from '../../http/describe.ts';
import { Cost } from '../../http/openapi/cost.ts';
import { MODEL_REFUSALS, PICTURE_REFUSALS } from '../../http/openapi/refusals.ts';
import { ChatBody } from '../wire/chat-schema.ts';
import { SVC_PARAMETER_DEFAULTS } from '../wire/svc-parameters.ts';

export const Count = z.int().min(0);

export function responseId(pattern: RegExp): z.ZodString {
  return z
    .string()
    .regex(pattern)
    .describe('Id of the response; `GET /usage/{id}` finds its receipt.');
}

const ToolCall = z.looseObject({
  id: z.string().describe('Id of the call; its `tool` message repeats it.'),
  type: z.literal('function').describe('Always `function`.'),
  function: z
    .looseObject({
      name: z.string().describe('Name of the function, one of `tools`.'),
      arguments: z.string().describe('JSON text'),
    })
    .describe('The function and its arguments.'),
});

const Message = z.looseObject({
  role: z.literal('assistant').describe('Role of the author.'),
  content: z.union([z.string(), z.null()]).describe('Text; null if there are only tool calls.'),
  reasoning_content: z.string().nullable().describe('Reasoning text; null if there is none.'),
  tool_calls: z.array(ToolCall).describe('Tool calls for the caller to run; may be empty.'),
  refusal: z.string().nullish().describe('Text by which the model refuses; null if it does not.'),
});

const FinishReason = z.enum(['stop', 'length', 'tool_calls', 'content_filter']);

const Usage = z
  .looseObject({
    prompt_tokens: Count.describe('Tokens of the prompt, tools and additions included.'),
    completion_tokens: Count.describe('Tokens of the completion, reasoning included.'),
    total_tokens: Count.describe('Sum of both.'),
    prompt_tokens_details: z
      .looseObject({
        cached_tokens: Count.describe('Read from a cache; billed at `cacheInput`.'),
        cache_creation_input_tokens: Count.optional().describe(
          'Written to a cache; billed at `cacheWrite`.',
        ),
      })
      .nullable()
      .describe('Parts of `prompt_tokens`; null if not reported.'),
    completion_tokens_details: z
      .looseObject({ reasoning_tokens: Count.describe('Reasoning tokens.') })
      .nullable()
      .describe('Parts of `completion_tokens`; null if not reported.'),
  })
  .meta({ id: 'ChatUsage' });

const Citations = z
  .array(
    z.strictObject({
      title: z.string().describe('Title of the page.'),
      url: z.string().describe('Address of the page.'),
      content: z.string().optional().describe('Passage that the model received.'),
      date: z.string().optional().describe('Publication date reported by the search.'),
    }),
  )
  .describe('Search results in the order of their marks; empty without a search.');

export const Echo = z
  .strictObject({
    enable_e2ee: z.boolean().describe('Requested value. Default true.'),
    enable_web_search: z.enum(['off', 'on', 'auto']).describe('Effective search mode.'),
    enable_web_citations: z.boolean().describe('Whether citation marks were requested.'),
    enable_web_scraping: z.boolean().describe('Whether pages named in the prompt were read.'),
    enable_x_search: z.boolean().describe('Whether the engine used its own search.'),
    include_venice_system_prompt: z
      .boolean()
      .describe('Whether the system prompt of the service was added.'),
    include_search_results_in_stream: z
      .boolean()
      .describe('Whether the first chunk contained the citations.'),
    return_search_results_as_documents: z
      .boolean()
      .describe('Whether a tool call contained the citations.'),
    strip_thinking_response: z.boolean().describe('Whether `<think>` blocks were removed.'),
    disable_thinking: z.boolean().describe('Whether reasoning was turned off.'),
    character_slug: z.string().optional().describe('Persona of the response; absent without one.'),
    web_search_citations: Citations,
  })
  .describe('Effective service parameters.')
  .meta({ id: 'EffectiveParameters' });

const ChatCompletion = z
  .looseObject({
    id: responseId(/^chatcmpl-[0-9a-f]{32}$/),
    object: z.literal('chat.completion').describe('Kind of the object.'),
    created: z.int().describe('Unix time in seconds.'),
    model: z.string().describe('Id of the model that served the request.'),
    choices: z
      .array(
        z.looseObject({
          index: Count.describe('Index of the choice, from 0.'),
          finish_reason: FinishReason.describe('Why it ended; `length` means a limit was reached.'),
          logprobs: z
            .union([z.looseObject({}), z.null()])
            .describe('Log probabilities of the tokens; null unless requested.'),
          stop_reason: z
            .unknown()
            .describe('Stop text or token; null if the engine does not report it.'),
          message: Message.describe('The completion.'),
        }),
      )
      .describe('The choices, as many as `n`.'),
    usage: Usage.describe('Billed tokens.'),
    cost: Cost.describe('Charge for the request.'),
    prompt_logprobs: z.unknown().describe('Prompt log probabilities, if requested; else null.'),
    svc_parameters: Echo.describe('Effective service parameters and search citations.'),
  })
  .meta({ id: 'ChatCompletion' });

const Delta = z.looseObject({
  role: z.literal('assistant').nullish().describe('Role; in the first chunk of a choice.'),
  content: z.string().nullish().describe('Next piece of the text.'),
  reasoning_content: z.string().nullish().describe('Next piece of the reasoning.'),
  tool_calls: z
    .array(
      z.looseObject({
        index: Count.describe('Index of the call, from 0.'),
        id: z.string().nullish().describe('Id of the call; in its first piece.'),
        type: z.literal('function').nullish().describe('Kind of the call; in its first piece.'),
        function: z
          .looseObject({
            name: z
              .string()
              .nullish()
              .describe('Name of the function; in the first piece of a call.'),
            arguments: z
              .string()
              .nullish()
              .describe('Next piece of the JSON text of the arguments.'),
          })
          .optional()
          .describe('Next piece of the call.'),
      }),
    )
    .nullish()
    .describe('Pieces of tool calls, joined by `index`.'),
});

export const StreamError = z.looseObject({
  message: z.string().describe('Error text.'),
  type: z.string().describe('Error type.'),
});

const ChatCompletionEvent = z
  .looseObject({
    id: z.string().optional().describe('Id of the completion, the same in every chunk.'),
    object: z.literal('chat.completion.chunk').optional().describe('Kind of the object.'),
    created: z.int().optional().describe('Unix time in seconds, the same in every chunk.'),
    model: z.string().optional().describe('Id of the model that serves the request.'),
    choices: z
      .array(
        z.looseObject({
          index: Count.describe('Index of the choice, from 0.'),
          delta: Delta.describe('Content since the previous chunk.'),
          finish_reason: FinishReason.nullable().describe('Why it ended; in its last chunk.'),
        }),
      )
      .optional()
      .describe('Choices; empty in the chunk with `usage` and `cost`.'),
    usage: Usage.nullable().optional().describe('Billed tokens; in the last chunk.'),
    cost: Cost.optional().describe('Charge for the request; in the last chunk.'),
    svc_parameters: z
      .union([Echo, z.strictObject({ web_search_citations: Citations })])
      .optional()
      .describe('Effective service parameters; only citations in the first chunk.'),
    error: StreamError.optional().describe(
      'Error after the first byte; a chunk with `cost` before it has the charge so far.',
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
        refusal: null,
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

export const CHAT_REFUSALS: readonly FaultCode[] = [
  ...MODEL_REFUSALS,
  'CONTEXT_LENGTH_EXCEEDED',
  ...PICTURE_REFUSALS,
  'INVALID_AUDIO_FORMAT',
  'INVALID_VIDEO_FORMAT',
  'CHARACTER_NOT_FOUND',
];

export const CHAT_DESCRIPTION: RouteDescription = {
  tag: 'Chat',
  summary: 'Create a chat completion',
  about: `Works with every OpenAI client: set its base URL to this server. \`model\` is an id, a trait such as \`default\`, or a compatibility name; suffixes set service parameters: \`atlas-24b:enable_web_search=on\`.

With \`stream: true\` the response is a stream of events. The last chunk before \`[DONE]\` always contains \`usage\` and \`cost\`. An error after the first byte is an event with \`error\`; text sent before it is charged, and a chunk with \`usage\` and \`cost\` precedes the error.

The server holds the maximum cost before the request runs and charges the actual cost when it ends. A caller that disconnects pays for the output up to then.`,
  request: jsonContent(ChatBody.meta({ id: 'ChatCompletionRequest' }), {
    model: 'default',
    messages: [{ role: 'user', content: 'Hello' }],
  }),
  response: {
    status: 200,
    about: 'The completion, as JSON or as a stream.',
    headers: ['model', 'stream'],
    content: [...jsonContent(ChatCompletion, ANSWER), eventContent(ChatCompletionEvent, STREAM)],
  },
  refusals: CHAT_REFUSALS,
};
