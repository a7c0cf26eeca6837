/** What `/completions` answers, and what it says of itself. Engines may add members to a choice. */
import { z } from 'zod';
import { type RouteDescription, eventContent, jsonContent } from '../../http/describe.ts';
import { Cost } from '../../http/openapi/cost.ts';
import { MODEL_REFUSALS } from '../../http/openapi/refusals.ts';
import { CompletionBody } from './completion-request.ts';

const Count = z.int().min(0);

const Usage = z.strictObject({
  prompt_tokens: Count.describe('Tokens of all prompts.'),
  completion_tokens: Count.describe('Tokens of all choices that were made, shown or not.'),
  total_tokens: Count.describe('The sum of both.'),
});

const Choice = z.looseObject({
  text: z.string().describe('What was made, behind the prompt when `echo` was asked for.'),
  index: Count.describe('Its place: the choices of the first prompt come first.'),
  logprobs: z
    .union([z.looseObject({}), z.null()])
    .describe('How likely each token was, where that was asked for.'),
  finish_reason: z
    .enum(['stop', 'length', 'content_filter'])
    .nullable()
    .describe('Why it ended; null in events before its last.'),
});

const Completion = z
  .strictObject({
    id: z
      .string()
      .regex(/^cmpl-[0-9a-f]{32}$/)
      .describe('The id of the request behind `cmpl-`.'),
    object: z.literal('text_completion').describe('What this is.'),
    created: z.int().describe('Unix time in seconds.'),
    model: z.string().describe('Id of the model that answered.'),
    choices: z.array(Choice).describe('Empty in the event that carries usage and cost.'),
    usage: Usage.optional().describe('In an answer, and in the last event of a stream.'),
    cost: Cost.optional().describe('What was charged; beside `usage`.'),
  })
  .meta({ id: 'Completion' });

const CompletionEvent = z
  .union([
    Completion,
    z.strictObject({
      error: z
        .looseObject({
          message: z.string().describe('A sentence for people.'),
          type: z.string().describe('The kind of error.'),
        })
        .describe('What went wrong after the first byte.'),
    }),
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
  summary: 'Continue a text',
  about: `The older text protocol of OpenAI, for prompts that are taken as they stand: no chat template and no prompt of the service is put around them. It works with the text models whose engines speak it, at their prices; another one answers 400.

With \`stream: true\` the last event before \`[DONE]\` carries \`usage\` and \`cost\`, asked for or not.`,
  request: jsonContent(CompletionBody.meta({ id: 'CompletionRequest' }), {
    model: 'default',
    prompt: 'The sky is',
    max_tokens: 8,
  }),
  response: {
    status: 200,
    about: 'The text, whole or as a stream.',
    headers: ['model', 'stream'],
    content: [
      ...jsonContent(Completion, { ...HEAD, choices: [CHOICE], usage: USAGE, cost: COST }),
      eventContent(CompletionEvent, `${STREAM}data: [DONE]\n\n`),
    ],
  },
  refusals: [...MODEL_REFUSALS, 'CONTEXT_LENGTH_EXCEEDED'],
};
