/**
 * Converts content blocks of Anthropic's Messages API to parts of a chat message. Blocks of tools
 * that ran on Anthropic's servers are left out.
 */
import { refuseMember } from '../../json/validation.ts';
import { isJsonObject, type JsonObject } from '../../json/json-scan.ts';
import { jsonObjects } from '../../json/json-text.ts';
import type { ContentPart } from '../wire/chat-schema.ts';

type BlockPath = readonly (string | number)[];

export function partsOf(content: unknown, path: BlockPath): ContentPart[] {
  if (typeof content === 'string') return textParts(content);
  if (!Array.isArray(content)) return [];
  return (content as readonly unknown[]).flatMap((block, at) =>
    isJsonObject(block) ? blockParts(block, [...path, at]) : [],
  );
}

export function textsOf(content: unknown): string[] {
  if (typeof content === 'string') return [content];
  return jsonObjects(content).flatMap(({ type, text }) =>
    type === 'text' && typeof text === 'string' ? [text] : [],
  );
}

/** The parts of a block; the last one has the block's mark for a prompt cache. */
export function blockParts(block: JsonObject, path: BlockPath): ContentPart[] {
  return withMark(unmarkedParts(block, path), block);
}

export function withMark(parts: ContentPart[], block: JsonObject): ContentPart[] {
  const mark = cacheMark(block);
  const last = parts.at(-1);
  if (mark === undefined || last === undefined) return parts;
  return [...parts.slice(0, -1), { ...last, cache_control: mark }];
}

export function cacheMark({ cache_control: mark }: JsonObject): CacheMark | undefined {
  if (!isJsonObject(mark) || typeof mark['type'] !== 'string') return undefined;
  const { type, ttl } = mark;
  return typeof ttl === 'string' ? { type, ttl } : { type };
}

interface CacheMark extends JsonObject {
  readonly type: string;
  readonly ttl?: string;
}

function unmarkedParts(block: JsonObject, path: BlockPath): ContentPart[] {
  switch (block['type']) {
    case 'text':
      return textParts(block['text']);
    case 'image':
      return [{ type: 'image_url', image_url: { url: sourceUrl(block, 'image/png', path) } }];
    case 'document':
      return documentParts(block, path);
    case 'search_result':
      return textParts(searchResultText(block));
    case 'tool_reference':
      return textParts(referenceText(block['tool_name']));
    default:
      return [];
  }
}

function textParts(text: unknown): ContentPart[] {
  return typeof text === 'string' && text !== '' ? [{ type: 'text', text }] : [];
}

function referenceText(name: unknown): string {
  return typeof name === 'string' ? `The tool ${name} is available now.` : '';
}

function searchResultText(block: JsonObject): string {
  const head = [block['title'], block['source']].filter((text) => typeof text === 'string');
  return [...head, ...textsOf(block['content'])].join('\n');
}

/** Text documents become text; other files are extracted later, like files of any chat. */
function documentParts(block: JsonObject, path: BlockPath): ContentPart[] {
  const title = typeof block['title'] === 'string' ? block['title'] : undefined;
  const about = [title, block['context']].filter((text) => typeof text === 'string');
  const source = isJsonObject(block['source']) ? block['source'] : {};
  const isText = source['type'] === 'text' && typeof source['data'] === 'string';
  if (isText) return textParts([...about, source['data']].join('\n\n'));
  if (source['type'] === 'content') {
    return [...textParts(about.join('\n\n')), ...partsOf(source['content'], [...path, 'source'])];
  }
  const file_data = sourceUrl(block, 'application/pdf', path);
  return [
    { type: 'file', file: title === undefined ? { file_data } : { file_data, filename: title } },
  ];
}

/** The URL of a block's source; base64 becomes a data URL. Throws 400. */
function sourceUrl(block: JsonObject, fallbackType: string, path: BlockPath): string {
  const source = isJsonObject(block['source']) ? block['source'] : {};
  const { type, url, data, media_type: mediaType } = source;
  if (type === 'url' && typeof url === 'string') return url;
  if (type === 'base64' && typeof data === 'string' && data !== '') {
    return `data:${typeof mediaType === 'string' ? mediaType : fallbackType};base64,${data}`;
  }
  const message =
    type === 'file'
      ? 'Files are not stored on this server; send the bytes as base64 or a url'
      : 'Expected a source of type base64 with data or of type url with a url';
  throw refuseMember([...path, 'source'], message, 'invalid_value');
}
