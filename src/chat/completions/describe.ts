/** The OpenAPI description of `/completions`. Engines may add members to a choice. */
import * as z from 'zod';
import { type RouteDescription, eventContent, jsonContent } from '../../http/describe.ts';
import { Cost } from '../../http/openapi/cost.ts';
import { MODEL_REFUSALS } from '../../http/openapi/refusals.ts';
import { Count, responseId, StreamError } from '../chat-completions/describe.ts';
import { CompletionBody } from './completion-request.ts';

const Usage = z.strictObject({
  prompt_tokens: Count.describe('Tokens of all prompts.'),
  completion_tokens: Count.describe('Tokens of all generated choices, returned or not.'),
  total_tokens: Count.describe('Sum of both.'),
});

const Choice = z.looseObject({
  text: z.string().describe('The text; with `echo`, after the prompt.'),
  index: Count.describe('Index of the choice; those of the first prompt come first.'),
  logprobs: z
    .union([z.looseObject({}), z.null()])
    .describe('Log probabilities of the tokens; null unless requested.'),
  finish_reason: z
    .enum(['stop', 'length', 'content_filter'])
    .nullable()
    .describe('Why the choice ended; null before its last event.'),
});

const Completion = z
  .strictObject({
    id: responseId(/^cmpl-[0-9a-f]{32}$/),
    object: z.literal('text_completion').describe('Kind of the object.'),
    created: z.int().describe('Unix time in seconds.'),
    model: z.string().describe('Id of the model that served the request.'),
    choices: z.array(Choice).describe('Choices; empty in the event with `usage` and `cost`.'),
    usage: Usage.optional().describe('Billed tokens; in a stream in its last event.'),
    cost: Cost.optional().describe('Charge for the request, beside `usage`.'),
  })
  .meta({ id: 'Completion' });

const CompletionEvent = z
  .union([
    Completion,
    z.strictObject({ error: StreamError.describe('Error after the first byte.') }),
  ])
  .meta({ id: 'CompletionEvent' });

const HEAD = {
  id: 'cmpl-019aa3f1c0de4b7e8c1d2e3f4a5b6c7d',
  object: 'text_completion',
  created: 1_795_233_600,
  model: 'atlas-24b',
} as const;
const CHOICE = { text: ' blue', index: 0, logprobs: null, finish_reason: 'stop' } as const;
const USAGE = { prompt_tokens: 4, completion_tokens: 1, total_tokens: 5 };
const COST = { usd: 0.0000024, diem: 0 };

const STREAM = [
  { ...HEAD, choices: [CHOICE] },
  { ...HEAD, choices: [], usage: USAGE, cost: COST },
]
  .map((event) => `data: ${JSON.stringify(event)}\n\n`)
  .join('');

export const COMPLETIONS_DESCRIPTION: RouteDescription = {
  tag: 'Chat',
  summary: 'Create a text completion',
  about: `The older text protocol of OpenAI. The model receives the prompt unchanged, without chat template or system prompt. It works with text models whose engines support it, at their prices; a request for another model returns 400.

With \`stream: true\` the last event before \`[DONE]\` always contains \`usage\` and \`cost\`.`,
  request: jsonContent(CompletionBody.meta({ id: 'CompletionRequest' }), {
    model: 'default',
    prompt: 'The sky is',
    max_tokens: 8,
  }),
  response: {
    status: 200,
    about: 'The text, as JSON or as a stream.',
    headers: ['model', 'stream'],
    content: [
      ...jsonContent(Completion, { ...HEAD, choices: [CHOICE], usage: USAGE, cost: COST }),
      eventContent(CompletionEvent, `${STREAM}data: [DONE]\n\n`),
    ],
  },
  refusals: [...MODEL_REFUSALS, 'CONTEXT_LENGTH_EXCEEDED'],
};
