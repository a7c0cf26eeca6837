/**
 * The responses of the `/responses` routes. Every named member is present, as the Open Responses
 * specification requires; `null` means none.
 */
import * as z from 'zod';
import { Cost } from '../../http/openapi/cost.ts';
import { Count, Echo, responseId } from '../chat-completions/describe.ts';

const Status = z
  .enum(['in_progress', 'completed', 'incomplete'])
  .describe('State of the item; `incomplete` if it was truncated.');
const itemId = z.string().describe('Id of the item.');
const outputIndex = Count.describe('Index of the item in `output`, from 0.');
const namespace = z.string().optional().describe('Namespace of the tool, if it has one.');

const UrlCitation = z.looseObject({
  type: z.literal('url_citation').describe('Kind of the citation.'),
  url: z.string().describe('Address of the page.'),
  title: z.string().describe('Title of the page.'),
  start_index: Count.describe('Start of the cited text, in characters from 0.'),
  end_index: Count.describe('End of the cited text, exclusive.'),
});

const OutputText = z.looseObject({
  type: z.literal('output_text').describe('Kind of the block.'),
  text: z.string().describe('The text.'),
  annotations: z.array(UrlCitation).describe('Citations; empty without a search.'),
  logprobs: z.array(z.unknown()).describe('Log probabilities of the tokens; may be empty.'),
});

const SummaryText = z.looseObject({
  type: z.literal('summary_text').describe('Kind of the part.'),
  text: z.string().describe('Reasoning text.'),
});

const Refusal = z.looseObject({
  type: z.literal('refusal').describe('Kind of the part: the model declines.'),
  refusal: z.string().describe('Why it declines.'),
});

/** Items of tools that the caller runs, from an engine of this protocol. */
const CALLERS_ITEMS = ['apply_patch_call', 'compaction', 'local_shell_call', 'tool_search_call'];

const OutputItem = z
  .discriminatedUnion('type', [
    z.looseObject({
      id: itemId,
      type: z.literal('message').describe('Kind of the item.'),
      status: Status,
      role: z.literal('assistant').describe('Role of the author.'),
      content: z
        .array(z.discriminatedUnion('type', [OutputText, Refusal]))
        .describe('Parts of the item.'),
    }),
    z.looseObject({
      id: itemId,
      type: z.literal('reasoning').describe('Kind of the block.'),
      summary: z.array(SummaryText).describe('Parts of the item.'),
      encrypted_content: z
        .string()
        .nullish()
        .describe('Encrypted reasoning; send it back unchanged.'),
    }),
    z.looseObject({
      id: itemId,
      type: z.literal('function_call').describe('Kind of the item: a call for the caller to run.'),
      status: Status,
      call_id: z.string().describe('Id of the call; its `function_call_output` item repeats it.'),
      name: z.string().describe('Name of the function.'),
      namespace,
      arguments: z.string().describe('JSON text.'),
    }),
    z.looseObject({
      id: itemId,
      type: z.literal('custom_tool_call').describe('Kind of the item: a call with text input.'),
      status: Status,
      call_id: z
        .string()
        .describe('Id of the call; its `custom_tool_call_output` item repeats it.'),
      name: z.string().describe('Name of the tool.'),
      namespace,
      input: z.string().describe('Input of the tool.'),
    }),
    z.looseObject({
      id: itemId,
      type: z.literal('web_search_call').describe('Kind of the block: a search by this server.'),
      status: z
        .enum(['in_progress', 'completed', 'failed', 'incomplete'])
        .describe('State of the search.'),
      action: z
        .looseObject({
          type: z.literal('search').describe('Kind of the action.'),
          query: z.string().describe('The search query.'),
          sources: z
            .array(
              z.looseObject({
                type: z.literal('url').describe('Kind of the source.'),
                url: z.string().describe('Address of the page.'),
              }),
            )
            .describe('Pages found.'),
        })
        .describe('The search.'),
    }),
    z.looseObject({
      id: itemId,
      type: z.enum(CALLERS_ITEMS).describe('Kind of an item that the engine passes on.'),
    }),
  ])
  .meta({ id: 'ResponseItem' });

export const nullable = <T extends z.ZodType>(schema: T) => z.union([schema, z.null()]);

export const ResponseObject = z
  .looseObject({
    id: responseId(/^resp_[0-9a-f]{32}$/),
    object: z.literal('response').describe('Kind of the object.'),
    created_at: z.int().describe('Unix time in seconds.'),
    completed_at: nullable(z.int()).describe('Unix time in seconds; null until complete.'),
    status: z
      .enum(['in_progress', 'completed', 'incomplete', 'failed'])
      .describe(
        'State of the response: `incomplete` if a limit or filter ended it, `failed` with `error`.',
      ),
    error: nullable(
      z.looseObject({
        code: z.string().describe('Error code.'),
        message: z.string().describe('Error text.'),
      }),
    ).describe('The error, or null.'),
    incomplete_details: nullable(
      z.looseObject({ reason: z.string().describe('`max_output_tokens` or `content_filter`.') }),
    ).describe('Why the response is incomplete, or null.'),
    instructions: nullable(z.string()).describe('Value of the request.'),
    max_output_tokens: nullable(z.int()).describe('Value of the request, or null.'),
    max_tool_calls: nullable(z.int()).describe('Value of the request, or null.'),
    model: z.string().describe('Id of the model that served the request.'),
    output: z
      .array(OutputItem)
      .describe('Items in order: reasoning, messages, tool calls, searches.'),
    parallel_tool_calls: z.boolean().describe('Whether parallel tool calls were allowed.'),
    previous_response_id: nullable(z.string()).describe('Id of the continued response, or null.'),
    prompt_cache_key: nullable(z.string()).describe('Value of the request.'),
    safety_identifier: nullable(z.string()).describe('Value of the request.'),
    reasoning: z
      .looseObject({
        effort: nullable(z.string()).describe('Requested reasoning effort, or null.'),
        summary: nullable(z.string()).describe('Value of the request, or null.'),
      })
      .describe('Value of the request.'),
    service_tier: z.string().describe('Value of the request. Default `default`.'),
    store: z.boolean().describe('Whether the response is stored.'),
    background: z.literal(false).describe('Always false.'),
    temperature: z.number().describe('Effective value.'),
    top_p: z.number().describe('Effective value.'),
    presence_penalty: z.number().describe('Effective value.'),
    frequency_penalty: z.number().describe('Effective value.'),
    top_logprobs: z.int().describe('Effective value.'),
    text: z
      .looseObject({
        format: z
          .looseObject({ type: z.string().describe('`text`, `json_object` or `json_schema`.') })
          .describe('Effective format.'),
      })
      .describe('Effective options of the text.'),
    tool_choice: z
      .union([z.string(), z.looseObject({ type: z.string().describe('Kind of the choice.') })])
      .describe('Effective value.'),
    tools: z
      .array(z.looseObject({ type: z.string().describe('Kind of the tool.') }))
      .describe('Tools of the request.'),
    truncation: z
      .enum(['auto', 'disabled'])
      .describe('Value of the request; `auto` acts as `disabled`.'),
    user: nullable(z.string()).describe('Value of the request.'),
    metadata: z.record(z.string(), z.unknown()).describe('Tags of the request.'),
    usage: nullable(
      z.looseObject({
        input_tokens: Count.describe('Tokens of input, tools and continued responses.'),
        input_tokens_details: z
          .looseObject({
            cached_tokens: Count.describe('Read from a cache; billed at `cacheInput`.'),
            cache_write_tokens: Count.optional().describe(
              'Written to a cache; billed at `cacheWrite`.',
            ),
          })
          .describe('Parts of `input_tokens`.'),
        output_tokens: Count.describe('Tokens of the output, reasoning included.'),
        output_tokens_details: z
          .looseObject({ reasoning_tokens: Count.describe('Reasoning tokens.') })
          .describe('Parts of `output_tokens`.'),
        total_tokens: Count.describe('Sum of both.'),
      }),
    ).describe('Billed tokens; null until the response is complete.'),
    cost: Cost.optional().describe('Charge for the request, once it is made.'),
    svc_parameters: Echo.optional().describe('Effective service parameters.'),
  })
  .meta({ id: 'Response' });

function event<Type extends string>(type: Type, members: z.ZodRawShape) {
  return z.looseObject({
    type: z.literal(type).describe('Kind of the event.'),
    sequence_number: Count.describe('Number of the event in the stream, from 0.'),
    ...members,
  });
}

const ofResponse = { response: ResponseObject.describe('Current state of the response.') };
const ofItem = {
  output_index: outputIndex,
  item: OutputItem.describe('Current state of the item.'),
};
const inItem = {
  item_id: itemId,
  output_index: outputIndex,
};
const inPart = {
  ...inItem,
  content_index: Count.describe('Index of the part in the item, from 0.'),
};
const inSummary = {
  ...inItem,
  summary_index: Count.describe('Index of the part in the summary, from 0.'),
};
const logprobs = z.array(z.unknown()).describe('Log probabilities of the tokens; may be empty.');

const delta = z.string().describe('Next piece of the text or of the arguments.');
const text = z.string().describe('The complete text.');
const part = z
  .discriminatedUnion('type', [OutputText, Refusal])
  .describe('Current state of the part.');
const summaryPart = SummaryText.describe('Current state of the part.');

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
      annotation_index: Count.describe('Index of the annotation, from 0.'),
      annotation: UrlCitation.describe('The citation.'),
    }),
    event('response.output_text.done', { ...inPart, text, logprobs }),
    event('response.reasoning_summary_part.added', { ...inSummary, part: summaryPart }),
    event('response.reasoning_summary_text.delta', { ...inSummary, delta }),
    event('response.reasoning_summary_text.done', { ...inSummary, text }),
    event('response.reasoning_summary_part.done', { ...inSummary, part: summaryPart }),
    event('response.function_call_arguments.delta', { ...inItem, delta }),
    event('response.function_call_arguments.done', {
      ...inItem,
      name: z.string().optional().describe('Name of the function.'),
      arguments: z.string().describe('Complete JSON text of the arguments.'),
    }),
    event('response.custom_tool_call_input.delta', { ...inItem, delta }),
    event('response.custom_tool_call_input.done', {
      ...inItem,
      input: z.string().describe('Complete input of the tool.'),
    }),
    event('response.refusal.delta', { ...inPart, delta }),
    event('response.refusal.done', inPart),
    event('response.reasoning_text.delta', { ...inPart, delta }),
    event('response.reasoning_text.done', { ...inPart, text }),
    event('response.queued', ofResponse),
    event('response.web_search_call.in_progress', inItem),
    event('response.web_search_call.searching', inItem),
    event('response.web_search_call.completed', inItem),
    event('response.completed', ofResponse),
    event('response.incomplete', ofResponse),
    event('response.failed', ofResponse),
  ])
  .meta({ id: 'ResponseEvent' });
