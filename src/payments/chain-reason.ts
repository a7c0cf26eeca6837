/**
 * Errors of chains and facilitators as they may be logged: short, and without addresses of nodes,
 * which often carry the operator's access key.
 */
const MAX_CHARS = 200;

/** One sentence without URLs. */
export function chainReason(error: unknown): string {
  return messageOf(error)
    .replace(/\b(?:https?|wss?):\/\/\S+/gi, '<url>')
    .slice(0, MAX_CHARS);
}

function messageOf(error: unknown): string {
  if (!(error instanceof Error)) return String(error);
  // viem keeps a sentence without request details beside the full text.
  const short: unknown = 'shortMessage' in error ? error.shortMessage : undefined;
  return typeof short === 'string' ? short : error.message;
}
