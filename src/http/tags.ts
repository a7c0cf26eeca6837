/** Tags of a request, from `metadata` or `x-<service>-metadata`, with the bounds of OpenAI. */
import * as z from 'zod';
import { refuseIssues } from '../json/validation.ts';
import type { RequestContext } from './request-context.ts';

const MAX_TAGS = 16;
export const MAX_TAG_NAME_BYTES = 64;
export const MAX_TAG_VALUE_BYTES = 512;

export const TagMetadata = z.record(z.string(), z.unknown()).check((context) => {
  const tags = Object.entries(context.value);
  const refuse = (path: string[], message: string): void => {
    context.issues.push({ code: 'custom', input: undefined, path, message });
  };
  if (tags.length > MAX_TAGS) {
    return refuse([], `At most ${MAX_TAGS} members are taken, got ${tags.length}`);
  }
  for (const [name, value] of tags) {
    if (!isTagName(name)) {
      refuse([name], `Expected a name of 1 to ${MAX_TAG_NAME_BYTES} bytes of well-formed text`);
    } else if (!isTagValue(tagValue(value))) {
      refuse([name], `Expected at most ${MAX_TAG_VALUE_BYTES} bytes of well-formed text`);
    }
  }
});

/** Databases cannot store NUL or half of a surrogate pair. */
function isTagText(text: string, maxBytes: number): boolean {
  return !text.includes('\0') && text.isWellFormed() && Buffer.byteLength(text) <= maxBytes;
}

function tagValue(value: unknown): string {
  return typeof value === 'string' ? value : JSON.stringify(value);
}

/** Returns the tags of validated metadata, other values than text as JSON; `undefined` for none. */
export function tagsOf(
  metadata: Readonly<Record<string, unknown>> | null | undefined,
): Readonly<Record<string, string>> | undefined {
  const given = Object.entries(metadata ?? {}).filter(([, value]) => value !== null);
  if (given.length === 0) return undefined;
  return Object.fromEntries(given.map(([name, value]) => [name, tagValue(value)]));
}

/** Returns the members that are valid tags, for protocols whose clients cannot handle a 400. */
export function fittingTags(members: Readonly<Record<string, unknown>>): Record<string, string> {
  const fitting = Object.entries(tagsOf(members) ?? {}).filter(
    ([name, value]) => isTagName(name) && isTagValue(value),
  );
  return Object.fromEntries(fitting.slice(0, MAX_TAGS));
}

/** `__proto__` is no name, because validated metadata leaves it out. */
export function isTagName(text: string): boolean {
  return text !== '' && text !== '__proto__' && isTagText(text, MAX_TAG_NAME_BYTES);
}

export function isTagValue(text: string): boolean {
  return isTagText(text, MAX_TAG_VALUE_BYTES);
}

/** Reads the tags of the header: a JSON object in UTF-8 or escaped ASCII. Throws 400. */
export function readTags(
  context: RequestContext,
  { headers: { tagsHeader } }: { readonly headers: { readonly tagsHeader: string } },
): void {
  const refuse = (message: string) =>
    refuseIssues([{ code: 'custom', path: [tagsHeader], message }]);
  let given: unknown;
  try {
    // Node reads the bytes of a header as Latin-1.
    given = JSON.parse(Buffer.from(context.headers[tagsHeader] ?? '', 'latin1').toString());
  } catch {
    throw refuse('Expected a JSON object such as {"user":"anna"}'); // the header is no JSON
  }
  const checked = TagMetadata.safeParse(given);
  if (checked.success) {
    context.tags = tagsOf(checked.data);
    return;
  }
  const [issue] = checked.error.issues;
  const at = issue === undefined || issue.path.length === 0 ? '' : `${issue.path.join('.')}: `;
  throw refuse(at + (issue?.message ?? 'Expected a JSON object'));
}
