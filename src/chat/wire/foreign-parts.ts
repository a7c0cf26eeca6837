/**
 * Content parts in the spellings of other interfaces (Responses, Anthropic, MCP, older SDKs),
 * rewritten into the canonical five. A part that is canonical, or that is not understood, is
 * given back as the same object: the schema judges it.
 */
import { isJsonObject, type JsonObject } from '../../json/json-scan.ts';

/** The canonical form of one content part. */
export function canonicalPart(part: unknown): unknown {
  if (typeof part === 'string') return textPart(part);
  if (!isJsonObject(part)) return part;
  const converted = convertPart(part);
  if (converted === undefined) return part;
  const cacheControl = part['cache_control'];
  return isJsonObject(cacheControl) ? { ...converted, cache_control: cacheControl } : converted;
}

function textPart(text: string): JsonObject {
  return { type: 'text', text };
}

function convertPart(part: JsonObject): JsonObject | undefined {
  switch (part['type']) {
    case undefined:
    case 'input_text':
    case 'output_text':
      return typeof part['text'] === 'string' ? textPart(part['text']) : undefined;
    case 'refusal':
      return typeof part['refusal'] === 'string' ? textPart(part['refusal']) : undefined;
    case 'image_url':
      return typeof part['image_url'] === 'string' ? imagePart(part['image_url']) : undefined;
    case 'image':
    case 'input_image':
      return foreignImage(part);
    case 'video_url':
      return typeof part['video_url'] === 'string'
        ? { type: 'video_url', video_url: { url: part['video_url'] } }
        : undefined;
    case 'file':
      return isJsonObject(part['file']) ? undefined : foreignFile(part);
    case 'input_file':
    case 'document':
      return foreignFile(part);
    default:
      return undefined;
  }
}

function imagePart(url: string, detail?: unknown): JsonObject {
  const image = typeof detail === 'string' ? { url, detail } : { url };
  return { type: 'image_url', image_url: image };
}

function foreignImage(part: JsonObject): JsonObject | undefined {
  const nested = part['image_url'];
  if (isJsonObject(nested)) return { type: 'image_url', image_url: nested };
  const url = firstText(nested, part['url'], part['image']) ?? sourceUrl(part, 'image/png');
  return url === undefined ? undefined : imagePart(asUrl(url, part, 'image/png'), part['detail']);
}

function foreignFile(part: JsonObject): JsonObject | undefined {
  const data =
    firstText(part['file_data'], part['file_url']) ?? sourceUrl(part, 'application/octet-stream');
  if (data === undefined) return undefined;
  const filename = firstText(part['filename'], part['title']);
  const file_data = asUrl(data, part, 'application/octet-stream');
  return { type: 'file', file: filename === undefined ? { file_data } : { filename, file_data } };
}

/** `source: {type, media_type, data | url}` and `{data, mimeType}`. */
function sourceUrl(part: JsonObject, fallbackType: string): string | undefined {
  const source = isJsonObject(part['source']) ? part['source'] : part;
  const url = firstText(source['url']);
  if (url !== undefined) return url;
  const data = firstText(source['data']);
  if (data === undefined) return undefined;
  return source['type'] === 'text'
    ? `data:text/plain;base64,${Buffer.from(data).toString('base64')}`
    : asUrl(data, source, fallbackType);
}

/** Bare base64 becomes a data URL; a URL stays. */
function asUrl(value: string, typed: JsonObject, fallbackType: string): string {
  if (/^(?:https?|data):/i.test(value)) return value;
  const type = firstText(typed['media_type'], typed['mediaType'], typed['mimeType']);
  return `data:${type ?? fallbackType};base64,${value}`;
}

/** The first of the values that is a text with something in it. */
export function firstText(...values: readonly unknown[]): string | undefined {
  for (const value of values) if (typeof value === 'string' && value !== '') return value;
  return undefined;
}
