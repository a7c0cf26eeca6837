/** What the routes of files and batches say of themselves. */
import {
  type RouteDescription,
  bytesContent,
  fileField,
  formContent,
  jsonResponse,
  jsonContent,
} from '../http/describe.ts';
import {
  BatchList,
  BatchObject,
  BatchesQuery,
  CreateBatch,
  DeletedFile,
  FileList,
  FileObject,
  FilesQuery,
} from './schema.ts';

const FILE_ID = 'file-5c1d0e9f8a7b6c5d4e3f2a1b';
const OUTPUT_ID = 'file-0a1b2c3d4e5f60718293a4b5';
const BATCH_ID = 'batch_019aa3f1c0de4b7e8c1d2e3f';

const FILE = {
  id: FILE_ID,
  object: 'file',
  bytes: 18_204,
  created_at: 1_795_233_600,
  expires_at: 1_797_825_600,
  filename: 'questions.jsonl',
  purpose: 'batch',
  status: 'processed',
};
const BATCH = {
  id: BATCH_ID,
  object: 'batch',
  endpoint: '/v1/chat/completions',
  errors: null,
  input_file_id: FILE_ID,
  completion_window: '24h',
  status: 'completed',
  output_file_id: OUTPUT_ID,
  error_file_id: null,
  created_at: 1_795_233_610,
  in_progress_at: 1_795_233_612,
  expires_at: 1_795_320_010,
  finalizing_at: 1_795_234_000,
  completed_at: 1_795_234_001,
  failed_at: null,
  expired_at: null,
  cancelling_at: null,
  cancelled_at: null,
  request_counts: { total: 120, completed: 120, failed: 0 },
  usage: {
    input_tokens: 4_080,
    input_tokens_details: { cached_tokens: 0 },
    output_tokens: 11_400,
    output_tokens_details: { reasoning_tokens: 0 },
    total_tokens: 15_480,
  },
  cost: { usd: 0.007656, diem: 0 },
  metadata: { run: 'nightly' },
};

const fileId = {
  name: 'id',
  in: 'path',
  about: 'Id of the file.',
  example: FILE_ID,
  required: true,
} as const;
const batchId = { ...fileId, about: 'Id of the batch.', example: BATCH_ID } as const;

export const UPLOAD_FILE: RouteDescription = {
  tag: 'Batches',
  summary: 'Upload a file',
  about:
    'One request a line, as JSON: `{"custom_id": "…", "method": "POST", "url": "/v1/chat/completions", "body": {…}}`. It is looked at when a batch is made of it. A wallet needs the credit of a priced request to store one.',
  request: [
    formContent(['file', 'purpose'], {
      file: fileField('The lines, in UTF-8.'),
      purpose: { type: 'string', const: 'batch', description: 'What it is for.' },
      'expires_after[anchor]': {
        type: 'string',
        const: 'created_at',
        description: 'With `expires_after[seconds]`.',
      },
      'expires_after[seconds]': {
        type: 'integer',
        minimum: 3_600,
        maximum: 2_592_000,
        description: 'After how long it is deleted: one hour to 30 days.',
      },
    }),
  ],
  response: jsonResponse('The file is stored.', FileObject, FILE),
  refusals: [
    'INSUFFICIENT_BALANCE',
    'PAYLOAD_TOO_LARGE',
    'RATE_LIMIT_EXCEEDED',
    'SERVICE_UNAVAILABLE',
  ],
};

export const LIST_FILES: RouteDescription = {
  tag: 'Batches',
  summary: 'List files',
  about: 'The files of your account, with the results of its batches.',
  query: FilesQuery,
  response: jsonResponse('A page of files.', FileList, {
    object: 'list',
    data: [FILE],
    first_id: FILE_ID,
    last_id: FILE_ID,
    has_more: false,
  }),
  refusals: ['FILE_NOT_FOUND'],
};

export const READ_FILE: RouteDescription = {
  tag: 'Batches',
  summary: 'Describe a file',
  parameters: [fileId],
  response: jsonResponse('The file, without its content.', FileObject, FILE),
  refusals: ['FILE_NOT_FOUND'],
};

export const FILE_CONTENT: RouteDescription = {
  tag: 'Batches',
  summary: 'Download a file',
  about: 'The bytes of a file: what you uploaded, or the lines of a result.',
  parameters: [fileId],
  response: {
    status: 200,
    about: 'The content.',
    headers: ['no-store'],
    content: [
      bytesContent(
        'application/octet-stream',
        '{"id":"batch_req_1","custom_id":"q1","response":{"status_code":200,"request_id":"…","body":{}},"error":null}\n',
      ),
    ],
  },
  refusals: ['FILE_NOT_FOUND'],
};

export const DELETE_FILE: RouteDescription = {
  tag: 'Batches',
  summary: 'Delete a file',
  about: 'Its content is gone when this answers. A file that a batch still reads stays: 409.',
  parameters: [fileId],
  response: jsonResponse('The file is deleted.', DeletedFile, {
    id: FILE_ID,
    object: 'file',
    deleted: true,
  }),
  refusals: ['FILE_NOT_FOUND', 'FILE_IN_USE'],
};

export const CREATE_BATCH: RouteDescription = {
  tag: 'Batches',
  summary: 'Start a batch',
  about:
    'Runs every request of a file when engines have room to spare, within 24 hours and at the price of batches. Each request is charged when its answer is there, and once; what does not run costs nothing. The file is checked first: a batch whose file is not in order is `failed`, with the lines in `errors`.',
  request: jsonContent(CreateBatch, {
    input_file_id: FILE_ID,
    endpoint: '/v1/chat/completions',
    completion_window: '24h',
    metadata: { run: 'nightly' },
  }),
  response: jsonResponse(
    'The batch is queued.',
    BatchObject,
    {
      ...BATCH,
      status: 'validating',
      output_file_id: null,
      in_progress_at: null,
      finalizing_at: null,
      completed_at: null,
      request_counts: { total: 0, completed: 0, failed: 0 },
      usage: {
        input_tokens: 0,
        input_tokens_details: { cached_tokens: 0 },
        output_tokens: 0,
        output_tokens_details: { reasoning_tokens: 0 },
        total_tokens: 0,
      },
      cost: { usd: 0, diem: 0 },
    },
    'replay',
  ),
  refusals: ['FILE_NOT_FOUND', 'RATE_LIMIT_EXCEEDED'],
};

export const LIST_BATCHES: RouteDescription = {
  tag: 'Batches',
  summary: 'List batches',
  about: 'The batches of your account, newest first.',
  query: BatchesQuery,
  response: jsonResponse('A page of batches.', BatchList, {
    object: 'list',
    data: [BATCH],
    first_id: BATCH_ID,
    last_id: BATCH_ID,
    has_more: false,
  }),
  refusals: ['BATCH_NOT_FOUND'],
};

export const READ_BATCH: RouteDescription = {
  tag: 'Batches',
  summary: 'Look at a batch',
  parameters: [batchId],
  response: jsonResponse('The batch as it is now.', BatchObject, BATCH),
  refusals: ['BATCH_NOT_FOUND'],
};

export const CANCEL_BATCH: RouteDescription = {
  tag: 'Batches',
  summary: 'Cancel a batch',
  destructive: true,
  about:
    'Requests that run come to their end and are charged; the others do not run. What has been answered by then is in the output file.',
  parameters: [batchId],
  response: jsonResponse('The batch is ending.', BatchObject, {
    ...BATCH,
    status: 'cancelling',
    output_file_id: null,
    finalizing_at: null,
    completed_at: null,
    cancelling_at: 1_795_233_900,
    request_counts: { total: 120, completed: 48, failed: 0 },
  }),
  refusals: ['BATCH_NOT_FOUND', 'BATCH_HAS_ENDED'],
};
