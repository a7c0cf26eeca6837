/** Descriptions of the routes of files and batches in the API document. */
import {
  type RouteDescription,
  bytesContent,
  fileField,
  formContent,
  jsonResponse,
  jsonContent,
} from '../http/describe.ts';
import { NO_USE, useBody } from './batch-use.ts';
import {
  BatchList,
  BatchObject,
  BatchesQuery,
  CreateBatch,
  DeletedFile,
  FileList,
  FileObject,
  FilesQuery,
  pageOf,
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
    'One JSON request per line: `{"custom_id": "…", "method": "POST", "url": "/v1/chat/completions", "body": {…}}`. The lines are validated when a batch is created. A wallet needs the credit of a priced request to store a file.',
  request: [
    formContent(['file', 'purpose'], {
      file: fileField('The lines in UTF-8.'),
      purpose: { type: 'string', const: 'batch', description: 'Purpose of the file.' },
      'expires_after[anchor]': {
        type: 'string',
        const: 'created_at',
        description: 'Start of `expires_after[seconds]`.',
      },
      'expires_after[seconds]': {
        type: 'integer',
        minimum: 3_600,
        maximum: 2_592_000,
        description: 'Seconds until the file is deleted: one hour to 30 days.',
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
  about: 'Files of the account, including the results of batches.',
  query: FilesQuery,
  response: jsonResponse('A page of files.', FileList, pageOf([FILE], 1)),
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
  about: 'The bytes of an upload, or the lines of a result.',
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
  about: 'Deletes the file and its content. A file that an open batch reads is kept (409).',
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
    'Runs every request of a file when engines have spare capacity, within 24 hours and at the price of batches. Each request with a response is charged once; a request that does not run costs nothing. The file is validated first: a batch with an invalid file is `failed`, and `errors` lists the lines.',
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
      ...useBody(NO_USE),
    },
    'replay',
  ),
  refusals: ['FILE_NOT_FOUND', 'RATE_LIMIT_EXCEEDED'],
};

export const LIST_BATCHES: RouteDescription = {
  tag: 'Batches',
  summary: 'List batches',
  about: 'Batches of the account, newest first.',
  query: BatchesQuery,
  response: jsonResponse('A page of batches.', BatchList, pageOf([BATCH], 1)),
  refusals: ['BATCH_NOT_FOUND'],
};

export const READ_BATCH: RouteDescription = {
  tag: 'Batches',
  summary: 'Retrieve a batch',
  parameters: [batchId],
  response: jsonResponse('The current state of the batch.', BatchObject, BATCH),
  refusals: ['BATCH_NOT_FOUND'],
};

export const CANCEL_BATCH: RouteDescription = {
  tag: 'Batches',
  summary: 'Cancel a batch',
  destructive: true,
  about:
    'Running requests continue and are charged; the others do not run. The output file contains the responses up to then.',
  parameters: [batchId],
  response: jsonResponse('The batch is being cancelled.', BatchObject, {
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
