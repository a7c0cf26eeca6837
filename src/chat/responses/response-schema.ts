/**
 * What the routes of `/responses` answer. Every member that is named is there, as the Open Responses
 * specification demands, with `null` for nothing.
 */
import { z } from 'zod';
import { Cost } from '../../http/openapi/cost.ts';
import { Echo } from '../chat-completions/describe.ts';

export const Count = z.int().min(0);
const Status = z.enum(['in_progress', 'completed', 'incomplete']);

const UrlCitation = z.strictObject({
  type: z.literal('url_citation').describe('Marks a source on the web.'),
  url: z.string().describe('Address of the page.'),
  title: z.string().describe('Title of the page.'),
  start_index: Count.describe('Where in the text the passage begins, in characters from 0.'),
  end_index: Count.describe('Where it ends, that character excluded.'),
});

const OutputText = z.strictObject({
  type: z.literal('output_text').describe('Marks text.'),
  text: z.string().describe('The text.'),
  annotations: z.array(UrlCitation).describe('Sources of passages; empty without a search.'),
  logprobs: z.array(z.unknown()).describe('Log probabilities of the tokens; may be empty.'),
});

const SummaryText = z.strictObject({
  type: z.literal('summary_text').describe('Marks a part of a summary.'),
  text: z.string().describe('What the model thought.'),
});

const OutputItem = z
  .discriminatedUnion('type', [
    z.strictObject({
      id: z.string().describe('Id of the item, to refer to it by.'),
      type: z.literal('message').describe('Marks a message of the model.'),
      status: Status.describe('How far it is; `incomplete` when the answer ended before it.'),
      role: z.literal('assistant').describe('The model speaks.'),
      content: z.array(OutputText).describe('Its parts.'),
    }),
    z.strictObject({
      id: z.string().describe('Id of the item, to refer to it by.'),
      type: z.literal('reasoning').describe('Marks what the model thought.'),
      summary: z.array(SummaryText).describe('Its parts.'),
      encrypted_content: z.string().optional().describe('For `include`: send it back unchanged.'),
    }),
    z.strictObject({
      id: z.string().describe('Id of the item, to refer to it by.'),
      type: z.literal('function_call').describe('Marks a call for the caller to make.'),
      status: Status.describe('How far it is; `incomplete` when the answer ended before it.'),
      call_id: z.string().describe('Names the call; the item `function_call_output` repeats it.'),
      name: z.string().describe('Name of the function.'),
      namespace: z.string().optional().describe('The namespace that declared it, where one did.'),
      arguments: z.string().describe('JSON text.'),
    }),
    z.strictObject({
      id: z.string().describe('Id of the item, to refer to it by.'),
      type: z.literal('custom_tool_call').describe('Marks a call of a tool that takes plain text.'),
      status: Status.describe('How far it is; `incomplete` when the answer ended before it.'),
      call_id: z.string().describe('Repeated by the item `custom_tool_call_output`.'),
      name: z.string().describe('Name of the tool.'),
      namespace: z.string().optional().describe('The namespace that declared it, where one did.'),
      input: z.string().describe('The text for the tool.'),
    }),
    z.strictObject({
      id: z.string().describe('Id of the item, to refer to it by.'),
      type: z.literal('web_search_call').describe('Marks a search that this server made.'),
      status: z
        .enum(['in_progress', 'completed', 'failed', 'incomplete'])
        .describe('How far it is, and how it ended.'),
      action: z
        .strictObject({
          type: z.literal('search').describe('Marks a search.'),
          query: z.string().describe('Words that were searched for.'),
          sources: z
            .array(
              z.strictObject({
                type: z.literal('url').describe('Marks an address.'),
                url: z.string().describe('Address of the page.'),
              }),
            )
            .describe('Pages that were found.'),
        })
        .describe('What was searched.'),
    }),
  ])
  .meta({ id: 'ResponseItem' });

export const nullable = <T extends z.ZodType>(schema: T) => z.union([schema, z.null()]);

export const ResponseObject = z
  .looseObject({
    id: z
      .string()
      .regex(/^resp_[\da-f]{32}$/)
      .describe(
        'Id of the answer; its 32 digits are the request id, by which `GET /usage/{id}` finds the receipt.',
      ),
    object: z.literal('response').describe('Kind of the object.'),
    created_at: z.int().describe('Unix time in seconds.'),
    completed_at: nullable(z.int()).describe('Unix time in seconds; null until it is complete.'),
    status: z
      .enum(['in_progress', 'completed', 'incomplete', 'failed'])
      .describe(
        'How far it is: `incomplete` when a limit or a filter ended it, `failed` with `error`.',
      ),
    error: nullable(
      z.strictObject({
        code: z.string().describe('A word for programs.'),
        message: z.string().describe('A sentence for people.'),
      }),
    ).describe('What went wrong; null otherwise.'),
    incomplete_details: nullable(
      z.strictObject({ reason: z.string().describe('`max_output_tokens` or `content_filter`.') }),
    ).describe('Why it is incomplete; null otherwise.'),
    instructions: nullable(z.string()).describe('Echo of the request.'),
    max_output_tokens: nullable(z.int()).describe('Echo of the request; null when it set none.'),
    max_tool_calls: nullable(z.int()).describe('Echo of the request; null when it set none.'),
    model: z.string().describe('Id of the model that answered.'),
    output: z.array(OutputItem).describe('Reasoning, messages, calls and searches, in order.'),
    parallel_tool_calls: z.boolean().describe('Whether several calls at once were allowed.'),
    previous_response_id: nullable(z.string()).describe('The response that this one continues.'),
    prompt_cache_key: nullable(z.string()).describe('Echo of the request.'),
    safety_identifier: nullable(z.string()).describe('Echo of the request.'),
    reasoning: z
      .strictObject({
        effort: nullable(z.string()).describe('Requested reasoning effort, or null.'),
        summary: nullable(z.string()).describe('Echo of the request; null when nothing was said.'),
      })
      .describe('Echo of the request.'),
    service_tier: z.string().describe('Echo of the request; there is one tier, `default`.'),
    store: z.boolean().describe('Whether it is there for `previous_response_id`.'),
    background: z.literal(false).describe('Never: answers are not made in the background.'),
    temperature: z.number().describe('What was in force.'),
    top_p: z.number().describe('What was in force.'),
    presence_penalty: z.number().describe('What was in force.'),
    frequency_penalty: z.number().describe('What was in force.'),
    top_logprobs: z.int().describe('What was in force.'),
    text: z
      .looseObject({
        format: z
          .looseObject({ type: z.string().describe('`text`, `json_object` or `json_schema`.') })
          .describe('The form, as it was asked for.'),
      })
      .describe('The form of the text that was in force.'),
    tool_choice: z
      .union([z.string(), z.looseObject({ type: z.string().describe('Kind of the choice.') })])
      .describe('What was in force.'),
    tools: z
      .array(z.looseObject({ type: z.string().describe('Kind of the tool.') }))
      .describe('Tools that the model could call, as they were declared.'),
    truncation: z.enum(['auto', 'disabled']).describe('Echo; `auto` acts as `disabled`.'),
    user: nullable(z.string()).describe('Echo of the request.'),
    metadata: z.record(z.string(), z.unknown()).describe('Tags of the request.'),
    usage: nullable(
      z.strictObject({
        input_tokens: Count.describe('Tokens of the input, the tools and the turns before.'),
        input_tokens_details: z
          .strictObject({
            cached_tokens: Count.describe('Read from a cache, at the price of `cacheInput`.'),
          })
          .describe('Parts of `input_tokens`.'),
        output_tokens: Count.describe('Tokens that were written, thinking included.'),
        output_tokens_details: z
          .strictObject({ reasoning_tokens: Count.describe('Tokens of thinking.') })
          .describe('Parts of `output_tokens`.'),
        total_tokens: Count.describe('Both together.'),
      }),
    ).describe('What was counted; null until the answer is whole.'),
    cost: Cost.optional().describe('Once it is charged.'),
    svc_parameters: Echo.optional().describe('The service parameters that were in force.'),
  })
  .meta({ id: 'Response' });

/** The event of a type; all have a number that counts from 0. */
function event<Type extends string>(type: Type, members: z.ZodRawShape) {
  return z.strictObject({
    type: z.literal(type).describe('Kind of the event.'),
    sequence_number: Count.describe('Counts the events of the stream, from 0.'),
    ...members,
  });
}

const ofResponse = { response: ResponseObject.describe('The answer as it is now.') };
const ofItem = {
  output_index: Count.describe('Place of the item in `output`, from 0.'),
  item: OutputItem.describe('The item as it is now.'),
};
const inItem = {
  item_id: z.string().describe('Id of the item.'),
  output_index: Count.describe('Place of the item in `output`, from 0.'),
};
const inPart = {
  ...inItem,
  content_index: Count.describe('Place of the part in the item, from 0.'),
};
const inSummary = {
  ...inItem,
  summary_index: Count.describe('Place of the part in the summary, from 0.'),
};
const logprobs = z.array(z.unknown()).describe('Log probabilities of the tokens; may be empty.');

const delta = z.string().describe('The next piece of the text, or of the JSON text of arguments.');
const text = z.string().describe('The whole text.');
const part = OutputText.describe('The part as it is now: empty where it begins.');
const summaryPart = SummaryText.describe('The part as it is now: empty where it begins.');

export const ResponseEvent = z
  .discriminatedUnion('type', [
    event('response.created', ofResponse),
    event('response.in_progress', ofResponse),
    event('response.output_item.added', ofItem),
    event('response.output_item.done', ofItem),
    event('response.content_part.added', { ...inPart, part }),
    event('response.content_part.done', { ...inPart, part }),
    event('response.output_text.delta', { ...inPart, delta, logprobs }),
    event('response.output_text.annotation.added', {
      ...inPart,
      annotation_index: Count.describe('Place among the annotations of the part, from 0.'),
      annotation: UrlCitation.describe('The source.'),
    }),
    event('response.output_text.done', { ...inPart, text, logprobs }),
    event('response.reasoning_summary_part.added', { ...inSummary, part: summaryPart }),
    event('response.reasoning_summary_text.delta', { ...inSummary, delta }),
    event('response.reasoning_summary_text.done', { ...inSummary, text }),
    event('response.reasoning_summary_part.done', { ...inSummary, part: summaryPart }),
    event('response.function_call_arguments.delta', { ...inItem, delta }),
    event('response.function_call_arguments.done', {
      ...inItem,
      name: z.string().describe('Name of the function.'),
      arguments: z.string().describe('The whole arguments, JSON text.'),
    }),
    event('response.custom_tool_call_input.delta', { ...inItem, delta }),
    event('response.custom_tool_call_input.done', {
      ...inItem,
      input: z.string().describe('The whole text for the tool.'),
    }),
    event('response.web_search_call.in_progress', inItem),
    event('response.web_search_call.searching', inItem),
    event('response.web_search_call.completed', inItem),
    event('response.completed', ofResponse),
    event('response.incomplete', ofResponse),
    event('response.failed', ofResponse),
  ])
  .meta({ id: 'ResponseEvent' });
