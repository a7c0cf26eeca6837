/** What a receipt can be for and how its request can end, in the words of the API. Pure, for browsers too. */

/** What is sold; `cutout` is a removed background. */
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
