/** Schemas of files and batches, compatible with OpenAI. */
import * as z from 'zod';
import { Cost } from '../http/openapi/cost.ts';
import { DAY_MS, HOUR_MS, SECOND_MS } from '../core/clock.ts';
import { BATCH_STATES, COMPLETION_WINDOW } from './batch.ts';

/** Bounds of `expires_after`, as at OpenAI. */
const MIN_KEEP_SECONDS = HOUR_MS / SECOND_MS;
const MAX_KEEP_SECONDS = (30 * DAY_MS) / SECOND_MS;
const MAX_ID_CHARS = 100;
const MAX_METADATA = 16;
const MAX_METADATA_NAME = 64;
const MAX_METADATA_VALUE = 512;
const MAX_ENDPOINT_CHARS = 200;
const MAX_FILES_LISTED = 10_000;
const MAX_BATCHES_LISTED = 100;

const Seconds = z.int().describe('Unix time in seconds.');
const SecondsOrNull = z.int().nullable();
const Id = z.string().min(1).max(MAX_ID_CHARS);

export const ExpiresAfter = z
  .strictObject({
    anchor: z.literal('created_at').describe('Time at which the file was created.'),
    seconds: z.coerce
      .number()
      .int()
      .min(MIN_KEEP_SECONDS)
      .max(MAX_KEEP_SECONDS)
      .describe('Seconds, from one hour to 30 days.'),
  })
  .describe('Time until the file is deleted; the operator may set a shorter one.');

export type UploadFields = z.infer<typeof UploadFields>;
export const UploadFields = z.object({
  purpose: z.literal('batch', { error: 'Must be "batch"' }),
  expires_after: ExpiresAfter.optional(),
});

export const FilesQuery = z.object({
  limit: z.coerce
    .number()
    .int()
    .min(1)
    .max(MAX_FILES_LISTED)
    .default(MAX_FILES_LISTED)
    .describe(`Files per page, 1 to ${MAX_FILES_LISTED}.`),
  order: z.enum(['asc', 'desc']).default('desc').describe('Order by creation time.'),
  after: Id.optional().describe('The `last_id` of the previous page.'),
  purpose: z.enum(['batch', 'batch_output']).optional().describe('Only files with this purpose.'),
});

export const BatchesQuery = z.object({
  limit: z.coerce
    .number()
    .int()
    .min(1)
    .max(MAX_BATCHES_LISTED)
    .default(20)
    .describe(`Batches per page, 1 to ${MAX_BATCHES_LISTED}.`),
  after: Id.optional().describe('The `last_id` of the previous page.'),
});

export const CreateBatch = z.object({
  input_file_id: Id.describe('A file with the purpose `batch`.'),
  endpoint: z
    .string()
    .max(MAX_ENDPOINT_CHARS)
    .describe('Endpoint of every request of the file, such as `/v1/chat/completions`.'),
  completion_window: z
    .literal(COMPLETION_WINDOW, { error: `Must be "${COMPLETION_WINDOW}"` })
    .describe('Time limit of the batch.'),
  metadata: z
    .record(z.string().min(1).max(MAX_METADATA_NAME), z.string().max(MAX_METADATA_VALUE))
    .refine((tags) => Object.keys(tags).length <= MAX_METADATA, `At most ${MAX_METADATA} pairs`)
    .nullish()
    .describe(
      `Up to ${MAX_METADATA} pairs with names of up to ${MAX_METADATA_NAME} and values of up to ${MAX_METADATA_VALUE} characters.`,
    ),
  output_expires_after: ExpiresAfter.nullish().describe(
    'Time until the result files are deleted, from the end of the batch.',
  ),
});

export const FileObject = z
  .strictObject({
    id: z.string().describe('Id of the file.'),
    object: z.literal('file').describe('Always `file`.'),
    bytes: z.int().describe('Size in bytes.'),
    created_at: Seconds,
    expires_at: z.int().nullable().describe('Unix time in seconds at which the file is deleted.'),
    filename: z.string().describe('Name of the upload, or a name with the id of the batch.'),
    purpose: z
      .enum(['batch', 'batch_output'])
      .describe('`batch`: an upload. `batch_output`: a result of a batch.'),
    status: z.literal('processed').describe('Always `processed`.'),
  })
  .meta({ id: 'StoredFile' });

const listOf = <T extends z.ZodType>(item: T) =>
  z.strictObject({
    object: z.literal('list').describe('Always `list`.'),
    data: z.array(item).describe('Items of this page.'),
    first_id: z.string().nullable().describe('Id of the first item of this page.'),
    last_id: z.string().nullable().describe('Id of the last item, for `after`.'),
    has_more: z.boolean().describe('Whether there are more items.'),
  });

export const FileList = listOf(FileObject).meta({ id: 'FileList' });

export const DeletedFile = z
  .strictObject({
    id: z.string().describe('Id of the deleted file.'),
    object: z.literal('file').describe('Always `file`.'),
    deleted: z.literal(true).describe('Always true.'),
  })
  .meta({ id: 'DeletedFile' });

const Problem = z.strictObject({
  code: z.string().describe('Error code.'),
  message: z.string().describe('Problem and valid values.'),
  param: z.string().nullable().describe('Member of the line.'),
  line: z.int().nullable().describe('Number of the line, from 1.'),
});

export const BatchObject = z
  .strictObject({
    id: z.string().describe('Id of the batch.'),
    object: z.literal('batch').describe('Always `batch`.'),
    endpoint: z.string().describe('Endpoint of the requests.'),
    errors: z
      .strictObject({
        object: z.literal('list').describe('Always `list`.'),
        data: z.array(Problem).describe('The first problems.'),
      })
      .nullable()
      .describe('Problems of the input file of a `failed` batch.'),
    input_file_id: z.string().describe('Id of the input file.'),
    completion_window: z.literal(COMPLETION_WINDOW).describe('Time limit of the batch.'),
    status: z.enum(BATCH_STATES).describe('State of the batch.'),
    output_file_id: z
      .string()
      .nullable()
      .describe(
        'Id of the file with one response per line, after the end of the batch; null without responses.',
      ),
    error_file_id: z
      .string()
      .nullable()
      .describe(
        'Id of the file with the requests that were rejected, failed or did not run; null without such requests.',
      ),
    created_at: Seconds,
    in_progress_at: SecondsOrNull.describe('Time at which the requests began to run.'),
    expires_at: Seconds.describe('Unix time in seconds after which no request starts.'),
    finalizing_at: SecondsOrNull.describe('Time at which all requests had ended.'),
    completed_at: SecondsOrNull.describe('Time at which the result files were created.'),
    failed_at: SecondsOrNull.describe('Time at which the input file was rejected.'),
    expired_at: SecondsOrNull.describe('Time at which the batch expired.'),
    cancelling_at: SecondsOrNull.describe('Time at which the cancel was requested.'),
    cancelled_at: SecondsOrNull.describe('Time at which the batch was cancelled.'),
    request_counts: z
      .strictObject({
        total: z.int().describe('Requests in the input file.'),
        completed: z.int().describe('Requests in the output file.'),
        failed: z.int().describe('Requests in the error file.'),
      })
      .describe('Numbers of requests; updated every few seconds during the run.'),
    usage: z
      .strictObject({
        input_tokens: z.int().describe('Tokens of the prompts.'),
        input_tokens_details: z
          .strictObject({ cached_tokens: z.int().describe('Tokens read from a cache.') })
          .describe('Details of the input tokens.'),
        output_tokens: z.int().describe('Tokens of the completions, including reasoning.'),
        output_tokens_details: z
          .strictObject({ reasoning_tokens: z.int().describe('Tokens of reasoning.') })
          .describe('Details of the output tokens.'),
        total_tokens: z.int().describe('Sum of both.'),
      })
      .optional()
      .describe('Tokens of all requests; updated every few seconds during the run.'),
    cost: Cost.optional().describe('Charges of all requests; exact after the end.'),
    metadata: z.record(z.string(), z.string()).nullable().describe('Metadata of the request.'),
  })
  .meta({ id: 'Batch' });

export const BatchList = listOf(BatchObject).meta({ id: 'BatchList' });

export function pageOf<T extends { readonly id: string }>(items: readonly T[], limit: number) {
  const data = items.slice(0, limit);
  return {
    object: 'list' as const,
    data,
    first_id: data[0]?.id ?? null,
    last_id: data.at(-1)?.id ?? null,
    has_more: items.length > limit,
  };
}
