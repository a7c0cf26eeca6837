/**
 * Whether a chat body is of the plain kind that most callers send: messages of text, and no more
 * than the usual members with values of the usual types. Such a body needs no further look: what
 * passes here passes `ChatBody` too, which a test proves. The schema judges all others.
 */
import { type ChatBody, MAX_CHOICES, MAX_MODEL_CHARACTERS } from './chat-schema.ts';
import { isJsonObject, type JsonObject } from '../../json/json-scan.ts';

/** Narrows to a body that names no service parameters. */
export function isPlainChat(fields: JsonObject): fields is ChatBody {
  for (const key in fields) if (!isPlainMember(key, fields[key])) return false;
  return fields['model'] !== undefined && fields['messages'] !== undefined;
}

function isPlainMember(key: string, value: unknown): boolean {
  switch (key) {
    case 'model':
      return typeof value === 'string' && value !== '' && value.length <= MAX_MODEL_CHARACTERS;
    case 'messages':
      return Array.isArray(value) && value.length > 0 && value.every(isPlainMessage);
    case 'stream':
      return typeof value === 'boolean';
    case 'stream_options':
      return isJsonObject(value) && typeof value['include_usage'] === 'boolean';
    case 'max_tokens':
    case 'max_completion_tokens':
      return Number.isSafeInteger(value);
    case 'temperature':
      return isWithin(value, 0, 2);
    case 'top_p':
      return isWithin(value, 0, 1);
    case 'frequency_penalty':
    case 'presence_penalty':
      return isWithin(value, -2, 2);
    case 'n':
      return Number.isSafeInteger(value) && isWithin(value, 1, MAX_CHOICES);
    case 'seed':
      return Number.isSafeInteger(value) && isWithin(value, 1, Infinity);
    case 'stop':
    case 'user':
      return typeof value === 'string';
    default:
      return false;
  }
}

function isPlainMessage(message: unknown): boolean {
  if (!isJsonObject(message)) return false;
  for (const key in message) if (key !== 'role' && key !== 'content') return false;
  const { role, content } = message;
  const isKnown = role === 'user' || role === 'assistant' || role === 'system';
  return isKnown && typeof content === 'string';
}

function isWithin(value: unknown, least: number, most: number): boolean {
  return typeof value === 'number' && value >= least && value <= most;
}
