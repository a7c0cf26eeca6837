/**
 * Prepares content parts for an engine: files become delimited text, remote media is inlined
 * (unless the engine fetches it), inline media is validated. Unchanged messages and parts are
 * returned as the same objects.
 */
import type { CatalogModel } from '../catalog/catalog.ts';
import {
  type Documents,
  fileText,
  type MediaSettings,
  RequestMedia,
} from '../documents/documents.ts';
import { Fault } from '../core/faults.ts';
import type { ChatMessage, ContentPart } from './wire/chat-schema.ts';
import { refuseOverflow } from './chat-bounds.ts';

/** Limit for models with an unknown context. */
const MAX_FILE_TEXT_BYTES = 32_000_000;

interface ContentInputs {
  readonly messages: readonly ChatMessage[];
  readonly model: CatalogModel;
  readonly documents: Pick<Documents, 'extract'>;
  readonly media: MediaSettings;
  readonly engineFetches: boolean;
  readonly keepsFiles: boolean;
  /** As `MediaContext.reserve`. */
  readonly reserve: (totalBytes: number) => Fault | undefined;
  readonly signal: AbortSignal;
  /** Work is scheduled fairly between callers. */
  readonly caller: string;
}

export interface LoadedContent {
  readonly messages: readonly ChatMessage[];
  readonly textBytes: number;
}

export async function loadContent(inputs: ContentInputs): Promise<LoadedContent> {
  const { media, engineFetches, signal, caller, reserve, model } = inputs;
  const loader = new RequestMedia(media, { engineFetches, signal, caller, reserve });
  const messages: ChatMessage[] = [];
  let textBytes = 0;
  for (const [index, message] of inputs.messages.entries()) {
    if (message.role !== 'user' || typeof message.content === 'string') {
      messages.push(message);
      continue;
    }
    const given: readonly ContentPart[] = message.content;
    const path = (at: number) => ['messages', String(index), 'content', String(at)];
    // Media is fetched concurrently; files are extracted one after another.
    const content = await Promise.all(given.map((part, at) => loadMedium(loader, part, path(at))));
    for (const [at, part] of content.entries()) {
      if (part.type !== 'file' || inputs.keepsFiles) continue;
      const text = await readFile(inputs, loader, part, path(at));
      textBytes += Buffer.byteLength(text.text);
      refuseOverflow(textBytes, model);
      if (textBytes > MAX_FILE_TEXT_BYTES) {
        throw new Fault('PAYLOAD_TOO_LARGE', {
          message: 'The files of this request have too much text; send fewer or shorter ones',
        });
      }
      content[at] = text;
    }
    const isSame = content.every((part, at) => part === given[at]);
    messages.push(isSame ? message : { ...message, content });
  }
  return { messages, textBytes };
}

async function loadMedium(
  loader: RequestMedia,
  part: ContentPart,
  path: readonly string[],
): Promise<ContentPart> {
  if (part.type === 'image_url') {
    const url = await loader.image(part.image_url.url, [...path, 'image_url', 'url']);
    return url === part.image_url.url ? part : { ...part, image_url: { ...part.image_url, url } };
  }
  if (part.type === 'video_url') {
    const url = await loader.video(part.video_url.url, [...path, 'video_url', 'url']);
    return url === part.video_url.url ? part : { ...part, video_url: { ...part.video_url, url } };
  }
  if (part.type !== 'input_audio') return part;
  const { data, format } = part.input_audio;
  const audio = { data, ...(format === null || format === undefined ? {} : { format }) };
  const loaded = loader.audio(audio, [...path, 'input_audio', 'data']);
  if (loaded.data === data && loaded.format === format) return part;
  // The loader accepts the formats of the schema.
  const known = loaded.format as typeof format;
  return { ...part, input_audio: { ...part.input_audio, data: loaded.data, format: known } };
}

type Part<Type extends ContentPart['type']> = Extract<ContentPart, { type: Type }>;

async function readFile(
  { documents, signal, caller }: ContentInputs,
  loader: RequestMedia,
  { file: { file_data, filename }, cache_control }: Part<'file'>,
  path: readonly string[],
): Promise<Part<'text'>> {
  const wanted = { file_data, ...(filename ? { filename } : {}) };
  const file = await loader.file(wanted, [...path, 'file', 'file_data']);
  const extraction = await documents.extract({ ...file, signal, caller });
  const text = fileText(file.filename, extraction);
  return { type: 'text', text, ...(cache_control ? { cache_control } : {}) };
}

export function userText(messages: readonly ChatMessage[]): string {
  const last = messages.findLast((message) => message.role === 'user');
  if (last === undefined) return '';
  if (typeof last.content === 'string') return last.content;
  const texts = last.content?.map((part) => (part.type === 'text' ? part.text : '')) ?? [];
  return texts.filter((text) => text !== '').join('\n');
}

/**
 * Inserts a text before the last user message, so that the prefix shared with earlier turns stays
 * cacheable.
 */
export function withContext(messages: readonly ChatMessage[], text: string): ChatMessage[] {
  const at = messages.findLastIndex((message) => message.role === 'user');
  return messages.map((message, index) => {
    if (index !== at || message.role !== 'user') return message;
    const { content } = message;
    if (typeof content === 'string') return { ...message, content: `${text}\n\n${content}` };
    return { ...message, content: [{ type: 'text', text }, ...content] };
  });
}
