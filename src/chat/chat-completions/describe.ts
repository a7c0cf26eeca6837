/**
 * What `/chat/completions` answers, and what it says of itself. Engines may add members, so the
 * shapes are open; what is named here is always as it says.
 */
import { z } from 'zod';
import type { FaultCode } from '../../core/faults.ts';
import { type RouteDescription, eventContent, jsonContent } from '../../http/describe.ts';
import { Cost } from '../../http/openapi/cost.ts';
import { MODEL_REFUSALS, PICTURE_REFUSALS } from '../../http/openapi/refusals.ts';
import { ChatBody } from '../wire/chat-schema.ts';
import { SVC_PARAMETER_DEFAULTS } from '../wire/svc-parameters.ts';

const Count = z.int().min(0);

const ToolCall = z.looseObject({
  id: z.string().describe('Names the call; the message of role `tool` with its result repeats it.'),
  type: z.literal('function').describe('Only functions are called.'),
  function: z
    .looseObject({
      name: z.string().describe("Name of one of the request's `tools`."),
      arguments: z.string().describe('JSON text'),
    })
    .describe('What to call.'),
});

const Message = z.looseObject({
  role: z.literal('assistant').describe('The model speaks.'),
  content: z.union([z.string(), z.null()]).describe('Text; null if the model only calls tools.'),
  reasoning_content: z.string().nullable().describe('Reasoning text; null if there is none.'),
  tool_calls: z.array(ToolCall).describe('Calls for the caller to make; may be empty.'),
});

const FinishReason = z.enum(['stop', 'length', 'tool_calls', 'content_filter']);

const Usage = z
  .looseObject({
    prompt_tokens: Count.describe('Tokens of the prompt, tools and additions included.'),
    completion_tokens: Count.describe('Reasoning tokens included.'),
    total_tokens: Count.describe('Both together.'),
    prompt_tokens_details: z
      .looseObject({
        cached_tokens: Count.describe('Read from a cache, at the price of `cacheInput`.'),
        cache_creation_input_tokens: Count.optional().describe('Billed at `cacheWrite`.'),
      })
      .nullable()
      .describe('Parts of `prompt_tokens`; null where the engine does not tell.'),
    completion_tokens_details: z
      .looseObject({ reasoning_tokens: Count.describe('Tokens of thinking.') })
      .nullable()
      .describe('Parts of `completion_tokens`; null where the engine does not tell.'),
  })
  .meta({ id: 'ChatUsage' });

const Citations = z
  .array(
    z.strictObject({
      title: z.string().describe('Title of the page.'),
      url: z.string().describe('Address of the page.'),
      content: z.string().optional().describe('The passage that the model was given.'),
      date: z.string().optional().describe('When the page was published, as the search says it.'),
    }),
  )
  .describe('What a search found, in the order of the marks; empty when none ran.');

export const Echo = z
  .strictObject({
    enable_e2ee: z.boolean().describe('Echo of what was asked for; true when nothing was.'),
    enable_web_search: z.enum(['off', 'on', 'auto']).describe('Search mode that was in force.'),
    enable_web_citations: z.boolean().describe('Whether marks such as `[REF]0[/REF]` were asked.'),
    enable_web_scraping: z.boolean().describe('Whether up to 5 named pages were read.'),
    enable_x_search: z.boolean().describe('Whether the engine used its own social search.'),
    include_venice_system_prompt: z.boolean().describe('Whether the service prompt was in force.'),
    include_search_results_in_stream: z.boolean().describe('Whether citations were a first chunk.'),
    return_search_results_as_documents: z.boolean().describe('Whether citations were a tool call.'),
    strip_thinking_response: z.boolean().describe('Whether `<think>` blocks were removed.'),
    disable_thinking: z.boolean().describe('Whether thinking was turned off.'),
    character_slug: z.string().optional().describe('Persona of the response; absent without one.'),
    web_search_citations: Citations,
  })
  .describe('The parameters that were in force.')
  .meta({ id: 'EffectiveParameters' });

const ChatCompletion = z
  .looseObject({
    id: z
      .string()
      .regex(/^chatcmpl-[0-9a-f]{32}$/)
      .describe(
        'Id of the answer; its 32 digits are the request id, by which `GET /usage/{id}` finds the receipt.',
      ),
    object: z.literal('chat.completion').describe('Kind of the object.'),
    created: z.int().describe('Unix time in seconds.'),
    model: z.string().describe('Id of the model that answered.'),
    choices: z
      .array(
        z.looseObject({
          index: Count.describe('Place among the choices, from 0.'),
          finish_reason: FinishReason.describe('Why it ended; `length` means a limit was reached.'),
          logprobs: z
            .union([z.looseObject({}), z.null()])
            .describe("Log probabilities of the tokens in OpenAI's form; null unless asked for."),
          stop_reason: z
            .unknown()
            .describe('Stop text or token, if the engine reports it, or null.'),
          message: Message.describe('What the model said.'),
        }),
      )
      .describe('The answers, as many as `n` asked for.'),
    usage: Usage.describe('What was counted.'),
    cost: Cost.describe('What was charged.'),
    prompt_logprobs: z.unknown().describe('Prompt log probabilities, if requested; else null.'),
    svc_parameters: Echo.describe('Effective service parameters and search citations.'),
  })
  .meta({ id: 'ChatCompletion' });

const Delta = z.looseObject({
  role: z.literal('assistant').nullish().describe('In the first chunk of a choice.'),
  content: z.string().nullish().describe('The next piece of the text.'),
  reasoning_content: z.string().nullish().describe('The next piece of the thinking.'),
  tool_calls: z
    .array(
      z.looseObject({
        index: Count.describe('Which call the piece belongs to, from 0.'),
        id: z.string().nullish().describe('In the first piece of a call: its name.'),
        type: z.literal('function').nullish().describe('In the first piece of a call.'),
        function: z
          .looseObject({
            name: z.string().nullish().describe('In the first piece of a call: the function.'),
            arguments: z.string().nullish().describe("The next piece of the arguments' JSON text."),
          })
          .optional()
          .describe('The next piece of the call.'),
      }),
    )
    .nullish()
    .describe('Parts of calls; the texts of one `index` belong together.'),
});

const ChatCompletionEvent = z
  .looseObject({
    id: z.string().optional().describe('Id of the answer, the same in every chunk.'),
    object: z.literal('chat.completion.chunk').optional().describe('Kind of the object.'),
    created: z.int().optional().describe('Unix time in seconds, the same in every chunk.'),
    model: z.string().optional().describe('Id of the model that answers.'),
    choices: z
      .array(
        z.looseObject({
          index: Count.describe('Which choice the piece belongs to, from 0.'),
          delta: Delta.describe('What has come since the last chunk.'),
          finish_reason: FinishReason.nullable().describe('In the last chunk of a choice.'),
        }),
      )
      .optional()
      .describe('Empty in the chunk that carries usage and cost.'),
    usage: Usage.nullable().optional().describe('In the last chunk: what was counted.'),
    cost: Cost.optional().describe('In the last chunk: what was charged.'),
    svc_parameters: z
      .union([Echo, z.strictObject({ web_search_citations: Citations })])
      .optional()
      .describe('Citations alone before the text, when they were asked for in the stream.'),
    error: z
      .looseObject({
        message: z.string().describe('A sentence for people.'),
        type: z.string().describe('A word for programs, from the error catalogue.'),
      })
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
  summary: 'Answer a conversation',
  about: `Works with every OpenAI client: set its base URL to this server. \`model\` takes an id, a trait such as \`default\`, or a compatibility name; suffixes set parameters: \`atlas-24b:enable_web_search=on\`.

With \`stream: true\` the answer is a stream of events. The last chunk before \`[DONE]\` carries \`usage\` and \`cost\`, asked for or not. An error after the first byte is an event with \`error\`; text that had come before it is paid for, and a chunk with \`usage\` and \`cost\` before the error says so.

The worst case of the request is set aside before it runs and the true cost is taken when it ends. A caller who leaves pays for what was produced until then.`,
  request: jsonContent(ChatBody.meta({ id: 'ChatCompletionRequest' }), {
    model: 'default',
    messages: [{ role: 'user', content: 'Hello' }],
  }),
  response: {
    status: 200,
    about: 'The answer, whole or as a stream.',
    headers: ['model', 'stream'],
    content: [...jsonContent(ChatCompletion, ANSWER), eventContent(ChatCompletionEvent, STREAM)],
  },
  refusals: CHAT_REFUSALS,
};
