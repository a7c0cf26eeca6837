/** The shapes of files and batches on the wire, as OpenAI's clients know them. */
import { z } from 'zod';
import { Cost } from '../http/openapi/cost.ts';
import { DAY_MS, HOUR_MS, SECOND_MS } from '../core/clock.ts';
import { BATCH_STATES, COMPLETION_WINDOW } from './batch.ts';

/** Bounds of `expires_after`, OpenAI's own. */
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
    anchor: z.literal('created_at').describe('When the file was made.'),
    seconds: z.coerce
      .number()
      .int()
      .min(MIN_KEEP_SECONDS)
      .max(MAX_KEEP_SECONDS)
      .describe('One hour to 30 days.'),
  })
  .describe('When it is deleted; at the latest when the operator deletes all files of its age.');

export type UploadFields = z.infer<typeof UploadFields>;
export const UploadFields = z.object({
  purpose: z.literal('batch', { error: 'Must be "batch", the one purpose that files have here' }),
  expires_after: ExpiresAfter.optional(),
});

export const FilesQuery = z.object({
  limit: z.coerce
    .number()
    .int()
    .min(1)
    .max(MAX_FILES_LISTED)
    .default(MAX_FILES_LISTED)
    .describe(`Files a page, 1 to ${MAX_FILES_LISTED}.`),
  order: z.enum(['asc', 'desc']).default('desc').describe('By time; newest first unless `asc`.'),
  after: Id.optional().describe('The `last_id` of the page before.'),
  purpose: z.enum(['batch', 'batch_output']).optional().describe('Files of this purpose only.'),
});

export const BatchesQuery = z.object({
  limit: z.coerce
    .number()
    .int()
    .min(1)
    .max(MAX_BATCHES_LISTED)
    .default(20)
    .describe(`Batches a page, 1 to ${MAX_BATCHES_LISTED}.`),
  after: Id.optional().describe('The `last_id` of the page before.'),
});

export const CreateBatch = z.object({
  input_file_id: Id.describe('A file with the purpose `batch`.'),
  endpoint: z
    .string()
    .max(MAX_ENDPOINT_CHARS)
    .describe('Where every request of the file goes: `/v1/chat/completions`.'),
  completion_window: z
    .literal(COMPLETION_WINDOW, { error: `Must be "${COMPLETION_WINDOW}"` })
    .describe('How long it may take.'),
  metadata: z
    .record(z.string().min(1).max(MAX_METADATA_NAME), z.string().max(MAX_METADATA_VALUE))
    .refine((tags) => Object.keys(tags).length <= MAX_METADATA, `At most ${MAX_METADATA} pairs`)
    .nullish()
    .describe(
      `Up to ${MAX_METADATA} pairs of your own, names of ${MAX_METADATA_NAME} characters and values of ${MAX_METADATA_VALUE}.`,
    ),
  output_expires_after: ExpiresAfter.nullish().describe(
    'When the files of its result are deleted, counted from its end.',
  ),
});

export const FileObject = z
  .strictObject({
    id: z.string().describe('Names the file.'),
    object: z.literal('file').describe('Always `file`.'),
    bytes: z.int().describe('Its size.'),
    created_at: Seconds,
    expires_at: z.int().nullable().describe('Unix time in seconds at which it is deleted.'),
    filename: z.string().describe('As it was uploaded, or made from the id of its batch.'),
    purpose: z
      .enum(['batch', 'batch_output'])
      .describe('`batch`: uploaded for batches. `batch_output`: the result of one.'),
    status: z.literal('processed').describe('Always `processed`.'),
  })
  .meta({ id: 'StoredFile' });

const listOf = <T extends z.ZodType>(item: T) =>
  z.strictObject({
    object: z.literal('list').describe('Always `list`.'),
    data: z.array(item).describe('This page.'),
    first_id: z.string().nullable().describe('Id of the first of this page.'),
    last_id: z.string().nullable().describe('Id of the last, for `after`.'),
    has_more: z.boolean().describe('Whether another page follows.'),
  });

export const FileList = listOf(FileObject).meta({ id: 'FileList' });

export const DeletedFile = z
  .strictObject({
    id: z.string().describe('Of the file that is gone.'),
    object: z.literal('file').describe('Always `file`.'),
    deleted: z.literal(true).describe('Always true.'),
  })
  .meta({ id: 'DeletedFile' });

const Problem = z.strictObject({
  code: z.string().describe('What is wrong, for programs.'),
  message: z.string().describe('What is wrong, and what would be right.'),
  param: z.string().nullable().describe('The member of the line.'),
  line: z.int().nullable().describe('The line of the file, from 1.'),
});

export const BatchObject = z
  .strictObject({
    id: z.string().describe('Names the batch.'),
    object: z.literal('batch').describe('Always `batch`.'),
    endpoint: z.string().describe('Where its requests go.'),
    errors: z
      .strictObject({
        object: z.literal('list').describe('Always `list`.'),
        data: z.array(Problem).describe('The first of them.'),
      })
      .nullable()
      .describe('What is wrong with the file of a batch that `failed`.'),
    input_file_id: z.string().describe('The file with its requests.'),
    completion_window: z.literal(COMPLETION_WINDOW).describe('How long it may take.'),
    status: z.enum(BATCH_STATES).describe('How far it is.'),
    output_file_id: z
      .string()
      .nullable()
      .describe('The answers, one line a request, once the batch has ended; null without any.'),
    error_file_id: z
      .string()
      .nullable()
      .describe('The requests that were refused, failed or did not run; null without any.'),
    created_at: Seconds,
    in_progress_at: SecondsOrNull.describe('Its file is in order, and its requests run.'),
    expires_at: Seconds.describe('When what has not run by then does not run any more.'),
    finalizing_at: SecondsOrNull.describe('All its requests have ended.'),
    completed_at: SecondsOrNull.describe('Its files are there.'),
    failed_at: SecondsOrNull.describe('Its file was refused.'),
    expired_at: SecondsOrNull.describe('Its time was over before all its requests had run.'),
    cancelling_at: SecondsOrNull.describe('It was asked to end.'),
    cancelled_at: SecondsOrNull.describe('It has ended because it was asked to.'),
    request_counts: z
      .strictObject({
        total: z.int().describe('Requests of the file.'),
        completed: z.int().describe('Requests with an answer.'),
        failed: z.int().describe('Requests in the error file.'),
      })
      .describe('How many requests have ended; some seconds old while it runs.'),
    usage: z
      .strictObject({
        input_tokens: z.int().describe('Of the prompts.'),
        input_tokens_details: z
          .strictObject({ cached_tokens: z.int().describe('Read from a cache.') })
          .describe('Of these.'),
        output_tokens: z.int().describe('Of the answers, thinking included.'),
        output_tokens_details: z
          .strictObject({ reasoning_tokens: z.int().describe('Of thinking.') })
          .describe('Of these.'),
        total_tokens: z.int().describe('The sum of both.'),
      })
      .optional()
      .describe('Tokens of its requests so far; some seconds old while it runs.'),
    cost: Cost.optional().describe('What its requests were charged so far; exact at its end.'),
    metadata: z.record(z.string(), z.string()).nullable().describe('Your own pairs.'),
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
