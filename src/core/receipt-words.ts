/** Product names and final statuses of receipts, as in the API. Pure, for browsers too. */

export const RECEIPT_KINDS = [
  'chat',
  'completions',
  'embeddings',
  'rpc',
  'cutout',
  'image',
  'image_edit',
  'speech',
  'moderation',
  'rerank',
  'translation',
  'video',
  'transcription',
] as const;

export const RECEIPT_STATUSES = ['completed', 'aborted', 'failed', 'expired', 'running'] as const;
