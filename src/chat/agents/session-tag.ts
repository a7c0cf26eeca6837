/**
 * The session of an agent as a tag of its requests, so that what a session cost can be summed up by
 * it. What does not fit the bounds of tags is left out: it is ours, and no reason to refuse.
 */
import type { JsonObject } from '../../json/json-scan.ts';

const SESSION_TAG = 'session';
const MAX_TAGS = 16;
const MAX_VALUE_BYTES = 512;

/** The caller's metadata with the session beside; `undefined` for neither. */
export function withSession(
  metadata: JsonObject | null | undefined,
  session: string | null | undefined,
): JsonObject | undefined {
  const given = metadata ?? undefined;
  const isTag =
    typeof session === 'string' &&
    session !== '' &&
    session.isWellFormed() &&
    !session.includes('\0') &&
    Buffer.byteLength(session) <= MAX_VALUE_BYTES;
  const names = Object.keys(given ?? {});
  if (!isTag || names.includes(SESSION_TAG) || names.length >= MAX_TAGS) return given;
  return { ...given, [SESSION_TAG]: session };
}
