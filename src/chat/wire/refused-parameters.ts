/**
 * Finds the parameters that an engine's error response calls unknown or unsupported: in OpenAI's
 * `param` and `code`, in pydantic's lists (vLLM, Mistral), or in sentences. Errors about a value or
 * the length of the prompt name no parameter. Many engines repeat a rejected value in the message, so
 * a sentence that the request contains too is ignored: the caller wrote it.
 */
import { parsedJson } from '../../json/json-text.ts';
import { isJsonObject, type JsonObject } from '../../json/json-scan.ts';
import { CACHE_MARK, type RefusedParameter } from './engine-dialect.ts';

const MAX_NAMED = 16;

const UNKNOWN_CODES =
  /^(?:unsupported|unknown|unrecognized|invalid_parameter_combination|extra_forbidden)/;

const SENTENCES: readonly RegExp[] = [
  /(?:unsupported|unknown|unrecognized|unexpected) (?:request )?(?:parameter|argument|keyword argument|field|key|name|property|member)s?(?: supplied)?(?:: ?| (?=['"`]))['"`]?([A-Za-z_][A-Za-z0-9_]{0,49})['"`]?/gi,
  /(?:parameter|argument|keyword argument|field|key|name|property|member) ['"`]?([A-Za-z_][A-Za-z0-9_]{0,49})['"`]? is (?:not (?:supported|permitted|allowed|known|recognized)|unsupported|unknown|unrecognized)/gi,
  /argument not supported on this model: ['"`]?([A-Za-z_][A-Za-z0-9_]{0,49})['"`]?/gi,
  /\(['"`]?([A-Za-z_][A-Za-z0-9_]{0,49})['"`]? was unexpected\)/gi,
  /['"`]?([A-Za-z_][A-Za-z0-9_]{0,49})['"`]? and ['"`]?max_completion_tokens['"`]? (?:cannot be set )?at the same time/gi,
  // Only the default value is accepted, so the parameter can be left out.
  /['"`]?([A-Za-z_][A-Za-z0-9_]{0,49})['"`]? does not support .{1,40} with this model\. Only the default/gi,
];
const CALL_ID_LENGTH = /tool call id was .{1,300} with a length of 9/i;
const PYTHON_ITEM = /'type': '(?:extra_forbidden|value_error\.extra)', 'loc': \(([^)]{1,200})\)/g;

/** Whether the request contains a text of the error response. */
export type IsEcho = (text: string) => boolean;

/** `request`: JSON with all texts that were sent. It is only read if a text has to be compared. */
export function echoOf(request: unknown): IsEcho {
  let sent: string | undefined;
  return (text) => {
    sent ??= comparable(JSON.stringify(request));
    return sent.includes(comparable(text));
  };
}

/** Without white space, quotes and escapes, which an engine may write differently. */
function comparable(text: string): string {
  return text.replaceAll(/\\+[bfnrt]|[\s\\'"`]+/g, '').toLowerCase();
}

export function refusedParameters(body: Buffer, isEcho: IsEcho): readonly RefusedParameter[] {
  const text = body.toString('utf8');
  const inMembers = ofJson(parsedJson(text), isEcho);
  const named = inMembers.length > 0 ? inMembers : ofText(text, isEcho);
  const seen = new Map(
    named.map((one) => [`${one.inMessages} ${one.name} ${one.inner ?? ''}`, one]),
  );
  return [...seen.values()].slice(0, MAX_NAMED);
}

function ofJson(value: unknown, isEcho: IsEcho, depth = 0): RefusedParameter[] {
  if (depth > 4) return [];
  if (Array.isArray(value)) {
    return value.slice(0, MAX_NAMED).flatMap((item) => ofJson(item, isEcho, depth + 1));
  }
  if (typeof value === 'string')
    return value.startsWith('{') ? ofJson(parsedJson(value), isEcho, depth + 1) : [];
  if (!isJsonObject(value)) return [];
  const own = ofItem(value) ?? ofParam(value, isEcho);
  if (own !== undefined) return [own];
  return ['error', 'detail', 'message'].flatMap((key) => ofJson(value[key], isEcho, depth + 1));
}

function ofItem({ type, loc }: JsonObject): RefusedParameter | undefined {
  if (!Array.isArray(loc) || (type !== 'extra_forbidden' && type !== 'value_error.extra')) {
    return undefined;
  }
  return ofPlace(loc);
}

function ofParam(
  { param, code, message }: JsonObject,
  isEcho: IsEcho,
): RefusedParameter | undefined {
  if (typeof param !== 'string' || param === '') return undefined;
  const isUnknown = typeof code === 'string' && UNKNOWN_CODES.test(code);
  if (!isUnknown || code === 'unsupported_value') {
    return typeof message === 'string' ? ofText(message, isEcho)[0] : undefined;
  }
  return ofPlace(param.split(/[.[\]]+/).filter(Boolean));
}

/** For example `body, messages, 3, assistant, name` or `stream_options, x`. */
function ofPlace(place: readonly unknown[]): RefusedParameter | undefined {
  const steps = place[0] === 'body' ? place.slice(1) : place;
  const [name, inner] = steps;
  if (typeof name !== 'string') return undefined;
  if (steps.length > 1 && steps.at(-1) === CACHE_MARK) {
    return { name: CACHE_MARK, inMessages: true, inner: undefined };
  }
  if (name !== 'messages' || steps.length < 3) {
    return { name, inMessages: false, inner: typeof inner === 'string' ? inner : undefined };
  }
  const last = steps.at(-1);
  return typeof last === 'string' ? { name: last, inMessages: true, inner: undefined } : undefined;
}

function ofText(text: string, isEcho: IsEcho): RefusedParameter[] {
  const flat = text.replaceAll('\\"', '"');
  const named: RefusedParameter[] = [];
  for (const [item, place = ''] of flat.matchAll(PYTHON_ITEM)) {
    if (isEcho(item)) continue;
    const steps = place.split(',').map((step) => step.trim().replaceAll("'", ''));
    const one = ofPlace(steps.filter((step) => step !== ''));
    if (one !== undefined) named.push(one);
  }
  const inMessages = /['"`]messages[.[]\d/.test(flat);
  for (const sentence of SENTENCES) {
    for (const [said, name = ''] of flat.matchAll(sentence)) {
      if (!isEcho(said)) named.push({ name, inMessages, inner: undefined });
    }
  }
  const [length] = CALL_ID_LENGTH.exec(flat) ?? [];
  if (length !== undefined && !isEcho(length)) {
    named.push({ name: 'tool_call_id', inMessages: true, inner: 'length' });
  }
  return named;
}
