/**
 * Converts input items to the history of a chat. Unknown types of items and parts are left out; an
 * invalid item of a known type is a 400 that names its path.
 */
import * as z from 'zod';
import { nextTurn } from '../../core/event-loop.ts';
import type { JsonObject } from '../../json/json-scan.ts';
import { refuseMember } from '../../json/validation.ts';
import type { Sealer } from '../agents/sealed-text.ts';
import { engineToolName } from '../agents/engine-values.ts';
import { textPart, type Transcript } from '../agents/transcript.ts';
import { AUDIO_FORMATS, type ContentPart } from '../wire/chat-schema.ts';
import { fileUrl } from '../wire/foreign-messages.ts';
import { checkPart, type Place } from './check-part.ts';

const MAX_CALL_ID_CHARS = 256;
const callId = z.string().min(1).max(MAX_CALL_ID_CHARS);
const Parts = z.union(
  [z.string(), z.array(z.looseObject({ type: z.string() }))],
  'Expected a string or a list of parts',
);

const Message = z.looseObject({
  role: z.enum(['user', 'assistant', 'system', 'developer']),
  content: Parts.nullish(),
});
const NAMED = { call_id: callId, name: z.string().min(1), namespace: z.string().nullish() };
const FunctionCall = z.looseObject({ ...NAMED, arguments: z.string() });
const CustomCall = z.looseObject({ ...NAMED, input: z.string() });
const CallOutput = z.looseObject({
  call_id: callId,
  output: z.union([Parts, z.record(z.string(), z.unknown())]).nullish(),
});
const Reasoning = z.looseObject({
  encrypted_content: z.string().nullish(),
  summary: z.array(z.looseObject({ text: z.string().nullish() })).nullish(),
});

const Url = z.union([z.string(), z.looseObject({ url: z.string() })]);
const ImagePart = z.looseObject({ image_url: Url, detail: z.string().nullish() });
const VideoPart = z.looseObject({ video_url: Url });
const AudioPart = z.looseObject({
  input_audio: z.looseObject({ data: z.string().min(1), format: z.enum(AUDIO_FORMATS).nullish() }),
});
const FilePart = z.looseObject({
  file_data: z.string().nullish(),
  file_url: z.string().nullish(),
  filename: z.string().nullish(),
});

interface ItemReader {
  readonly transcript: Transcript;
  readonly sealer: Sealer;
  readonly accountId: string;
  /** Stored items by id. */
  readonly referenced: ReadonlyMap<unknown, JsonObject>;
}

/** Items between two turns of the event loop: some milliseconds of work. */
const READ_AT_ONCE = 500;

/** `isOwn`: the items come from the store of this server, which contains plain reasoning. */
export async function readItems(
  reader: ItemReader,
  items: readonly JsonObject[],
  at: { readonly place: Place; readonly isOwn: boolean },
): Promise<void> {
  for (const [index, item] of items.entries()) {
    if (index > 0 && index % READ_AT_ONCE === 0) await nextTurn();
    readItem(reader, item, { ...at, place: [...at.place, index] });
  }
}

function readItem(
  reader: ItemReader,
  item: JsonObject,
  at: { readonly place: Place; readonly isOwn: boolean },
): void {
  const { transcript } = reader;
  const { place } = at;
  const type = item['type'] ?? (item['role'] === undefined ? undefined : 'message');
  switch (type) {
    case 'message':
      return readMessage(transcript, item, place);
    case 'function_call': {
      const call = checkPart(FunctionCall, item, place);
      return readCall(transcript, call, call.arguments);
    }
    case 'custom_tool_call': {
      const call = checkPart(CustomCall, item, place);
      return readCall(transcript, call, JSON.stringify({ input: call.input }));
    }
    case 'reasoning':
      return transcript.reasoning(reasoningText(reader, item, at));
    case 'item_reference': {
      const { id } = checkPart(z.looseObject({ id: z.string() }), item, place);
      const stored = reader.referenced.get(id);
      if (stored !== undefined) readItem(reader, stored, { place, isOwn: true });
      return;
    }
    case 'function_call_output':
    case 'custom_tool_call_output':
      return readOutput(transcript, item, place);
    default: {
      // Outputs of other tools can have any form.
      const isOutput = typeof type === 'string' && type.endsWith('_call_output');
      if (isOutput && CallOutput.safeParse(item).success) readOutput(transcript, item, place);
      return;
    }
  }
}

function readCall(
  transcript: Transcript,
  { call_id: id, name, namespace }: z.infer<typeof FunctionCall> | z.infer<typeof CustomCall>,
  given: string,
): void {
  transcript.call({ id, name: engineToolName(name, namespace ?? ''), arguments: given });
}

function readMessage(transcript: Transcript, item: JsonObject, place: Place): void {
  const { role, content } = checkPart(Message, item, place);
  const parts = partsOf(content ?? '', [...place, 'content']);
  if (role === 'user') {
    if (parts.length > 0) transcript.user(parts);
  } else if (role === 'assistant') transcript.text(textOf(parts, '\n'));
  else transcript.system(textOf(parts, '\n'));
}

function readOutput(transcript: Transcript, item: JsonObject, place: Place): void {
  const { call_id, output } = checkPart(CallOutput, item, place);
  const isParts = typeof output === 'string' || Array.isArray(output);
  const given = isParts ? output : JSON.stringify(output ?? '');
  transcript.result(call_id, partsOf(given, [...place, 'output']));
}

/** Sealed reasoning of this account; items of the store have it as a summary. */
function reasoningText(
  { sealer, accountId }: ItemReader,
  item: JsonObject,
  { place, isOwn }: { readonly place: Place; readonly isOwn: boolean },
): string {
  const { encrypted_content, summary } = checkPart(Reasoning, item, place);
  const opened = sealer.open(encrypted_content, accountId);
  if (opened !== undefined || !isOwn) return opened ?? '';
  return (summary ?? []).map(({ text }) => text ?? '').join('\n');
}

function textOf(parts: readonly ContentPart[], separator: string): string {
  return parts.flatMap((part) => (part.type === 'text' ? [part.text] : [])).join(separator);
}

function partsOf(content: z.infer<typeof Parts>, place: Place): ContentPart[] {
  if (typeof content === 'string') return content === '' ? [] : [textPart(content)];
  return content.flatMap((part, index) => {
    const read = partOf(part, [...place, index]);
    return read === undefined ? [] : [read];
  });
}

function partOf(part: JsonObject, place: Place): ContentPart | undefined {
  const { type } = part;
  if (typeof part['file_id'] === 'string') {
    throw refuseMember([...place, 'file_id'], 'File ids are not supported; send the data itself');
  }
  switch (type) {
    case 'input_text':
    case 'output_text':
    case 'text':
    case 'summary_text':
    case 'refusal': {
      const text = part[type === 'refusal' ? 'refusal' : 'text'];
      if (typeof text !== 'string') throw refuseMember([...place, 'text'], 'Expected a string');
      return text === '' ? undefined : textPart(text);
    }
    case 'input_image': {
      const { image_url, detail } = checkPart(ImagePart, part, place);
      const known = detail === 'low' || detail === 'high' ? { detail } : {};
      return { type: 'image_url', image_url: { url: urlOf(image_url), ...known } };
    }
    case 'input_video':
      return {
        type: 'video_url',
        video_url: { url: urlOf(checkPart(VideoPart, part, place).video_url) },
      };
    case 'input_audio': {
      const { input_audio } = checkPart(AudioPart, part, place);
      return { type: 'input_audio', input_audio };
    }
    case 'input_file':
      return filePart(part, place);
    default:
      return undefined;
  }
}

function urlOf(url: z.infer<typeof Url>): string {
  return typeof url === 'string' ? url : url.url;
}

function filePart(part: JsonObject, place: Place): ContentPart {
  const { file_data, file_url, filename } = checkPart(FilePart, part, place);
  const given = file_data ?? file_url ?? '';
  if (given === '') throw refuseMember([...place, 'file_data'], 'Expected file_data or file_url');
  const url = fileUrl(given, part);
  return { type: 'file', file: { file_data: url, ...(filename ? { filename } : {}) } };
}
