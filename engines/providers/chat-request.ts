/**
 * Converts a chat request of the OpenAI API into the options of a call to a language model. Throws a
 * `ProviderFailure` of status 400 for members that no provider package can honour.
 */
import type {
  LanguageModelV4,
  LanguageModelV4CallOptions,
  LanguageModelV4FilePart,
  LanguageModelV4FunctionTool,
  LanguageModelV4Message,
  LanguageModelV4ReasoningPart,
  LanguageModelV4TextPart,
  LanguageModelV4ToolCallPart,
  SharedV4ProviderOptions,
} from '@ai-sdk/provider';
import { ChatBody, type ChatMessage, type ContentPart } from '../../src/chat/wire/chat-schema.ts';
import { type JsonObject, isJsonObject } from '../../src/json/json-scan.ts';
import { parsedJson } from '../../src/json/json-text.ts';
import { ProviderFailure } from './failure.ts';
import type { Provider } from './provider.ts';

export { ChatBody };

export async function callOptionsOf(
  body: ChatBody,
  { provider, model, signal }: { provider: Provider; model: LanguageModelV4; signal: AbortSignal },
): Promise<LanguageModelV4CallOptions> {
  requireHonoured(body);
  const prompt = new PromptWriter(provider, await model.supportedUrls).prompt(body.messages);
  const effort = body.reasoning_effort ?? body.reasoning?.effort;
  const stop = body.stop ?? [];
  const isSequential = body.parallel_tool_calls === false;
  const options: LanguageModelV4CallOptions = {
    prompt,
    ...given({
      maxOutputTokens: body.max_completion_tokens ?? body.max_tokens,
      temperature: body.temperature,
      topP: body.top_p,
      topK: body.top_k,
      presencePenalty: body.presence_penalty,
      frequencyPenalty: body.frequency_penalty,
      seed: body.seed,
      reasoning: effort,
      responseFormat: responseFormatOf(body),
      toolChoice: toolChoiceOf(body),
    }),
    ...(stop.length > 0 && { stopSequences: typeof stop === 'string' ? [stop] : stop }),
    abortSignal: signal,
    // Each package reads the members that it knows.
    providerOptions: provider.callOptions({
      ...(isSequential && { parallelToolCalls: false, disableParallelToolUse: true }),
      promptCacheKey: body.prompt_cache_key ?? undefined,
      textVerbosity: body.verbosity === 'auto' ? undefined : (body.verbosity ?? undefined),
    }),
  };
  const tools = (body.tools ?? []).map((tool) => functionTool(tool, provider));
  return tools.length > 0 ? { ...options, tools } : options;
}

const NOT_HONOURED = ['repetition_penalty', 'min_p', 'stop_token_ids', 'top_logprobs'] as const;

function requireHonoured(body: ChatBody): void {
  const refuse = (name: string): never => {
    throw new ProviderFailure(400, `The provider does not support "${name}"; omit it`);
  };
  if ((body.n ?? 1) > 1) refuse('n');
  if (body.logprobs === true) refuse('logprobs');
  for (const name of NOT_HONOURED) if ((body[name] ?? undefined) !== undefined) refuse(name);
}

/** Without absent members, which the options do not allow. */
function given<Members extends object>(
  members: Members,
): { [Name in keyof Members]?: NonNullable<Members[Name]> } {
  const set = Object.entries(members).filter(([, value]) => (value ?? undefined) !== undefined);
  return Object.fromEntries(set) as { [Name in keyof Members]?: NonNullable<Members[Name]> };
}

function responseFormatOf({
  response_format: format,
}: ChatBody): LanguageModelV4CallOptions['responseFormat'] {
  if (format?.type === 'json_object') return { type: 'json' };
  if (format?.type !== 'json_schema') return undefined;
  const { name, description, schema } = format.json_schema;
  return { type: 'json', name, ...given({ description }), schema };
}

function toolChoiceOf({ tool_choice: choice }: ChatBody): LanguageModelV4CallOptions['toolChoice'] {
  if (choice === undefined || choice === null) return undefined;
  if (typeof choice === 'string') return { type: choice };
  return { type: 'tool', toolName: choice.function.name };
}

function functionTool(
  tool: NonNullable<ChatBody['tools']>[number],
  provider: Provider,
): LanguageModelV4FunctionTool {
  const { name, description, parameters, strict } = tool.function;
  return {
    type: 'function',
    name,
    inputSchema: parameters ?? { type: 'object', properties: {} },
    ...given({ description, strict, providerOptions: cacheOptions(tool, provider) }),
  };
}

/** A cache mark under the names of Anthropic and of Bedrock. */
function cacheOptions(
  { cache_control: mark }: JsonObject,
  provider: Provider,
): SharedV4ProviderOptions | undefined {
  if (!isJsonObject(mark)) return undefined;
  const { type, ttl } = mark;
  const lifetime = typeof ttl === 'string' ? { ttl } : {};
  return provider.named({
    cacheControl: { type, ...lifetime },
    cachePoint: { type: 'default', ...lifetime },
  });
}

type UserPart = LanguageModelV4TextPart | LanguageModelV4FilePart;
type AssistantMessage = Extract<ChatMessage, { role: 'assistant' }>;
type TextContent = Extract<ChatMessage, { role: 'tool' }>['content'];
type Urls = Awaited<LanguageModelV4['supportedUrls']>;

class PromptWriter {
  readonly #provider: Provider;
  readonly #urls: Urls;
  readonly #toolNames = new Map<string, string>();

  constructor(provider: Provider, urls: Urls) {
    this.#provider = provider;
    this.#urls = urls;
  }

  prompt(messages: readonly ChatMessage[]): LanguageModelV4Message[] {
    const prompt: LanguageModelV4Message[] = [];
    for (const message of messages) {
      const converted = this.#messages(message);
      const last = prompt.at(-1);
      const [first] = converted;
      // The results of one turn are one message.
      if (last?.role === 'tool' && first?.role === 'tool') last.content.push(...first.content);
      else prompt.push(...converted);
    }
    return prompt;
  }

  #messages(message: ChatMessage): LanguageModelV4Message[] {
    switch (message.role) {
      case 'system':
      case 'developer':
        return this.#systemMessages(message.content);
      case 'user': {
        const { content } = message;
        const parts = typeof content === 'string' ? [textPart(content)] : content;
        return [{ role: 'user', content: parts.map((part) => this.#userPart(part)) }];
      }
      case 'assistant':
        return [{ role: 'assistant', content: this.#assistantParts(message) }];
      case 'tool': {
        const { tool_call_id: id, content } = message;
        const marked = typeof content === 'string' ? message : (content.at(-1) ?? message);
        const part = {
          type: 'tool-result' as const,
          toolCallId: id,
          toolName: this.#toolNames.get(id) ?? message.name ?? 'unknown',
          output: { type: 'text' as const, value: textOf(content) },
          ...given({ providerOptions: cacheOptions(marked, this.#provider) }),
        };
        return [{ role: 'tool', content: [part] }];
      }
    }
  }

  /** One message up to each cache mark, because a system message has no parts. */
  #systemMessages(content: TextContent): LanguageModelV4Message[] {
    const parts = typeof content === 'string' ? [textPart(content)] : content;
    const messages: LanguageModelV4Message[] = [];
    let text = '';
    for (const [index, part] of parts.entries()) {
      text += part.text;
      const providerOptions = cacheOptions(part, this.#provider);
      if (providerOptions === undefined && index < parts.length - 1) continue;
      messages.push({ role: 'system', content: text, ...given({ providerOptions }) });
      text = '';
    }
    return messages;
  }

  #userPart(part: ContentPart): UserPart {
    const providerOptions = cacheOptions(part, this.#provider);
    const marked = given({ providerOptions });
    switch (part.type) {
      case 'text':
        return { type: 'text', text: part.text, ...marked };
      case 'image_url':
        return { ...this.#filePart(part.image_url.url, 'image/*'), ...marked };
      case 'video_url':
        return { ...this.#filePart(part.video_url.url, 'video/mp4'), ...marked };
      case 'file': {
        const { file_data: url, filename } = part.file;
        const file = this.#filePart(url, 'application/pdf');
        return { ...file, ...given({ filename }), ...marked };
      }
      case 'input_audio': {
        const { data, format } = part.input_audio;
        const mediaType = AUDIO_TYPES[format ?? 'wav'] ?? `audio/${format}`;
        return { type: 'file', mediaType, data: { type: 'data', data }, ...marked };
      }
    }
  }

  /** The package never fetches a URL itself: it is passed on, or the request is rejected. */
  #filePart(url: string, usualType: string): LanguageModelV4FilePart {
    const [head, mediaType] = BASE64_URL.exec(url) ?? [];
    if (head !== undefined && mediaType !== undefined) {
      const data = url.slice(head.length);
      return { type: 'file', mediaType, data: { type: 'data', data } };
    }
    const [kind] = usualType.split('/');
    const isSupported = Object.entries(this.#urls).some(
      ([type, patterns]) =>
        ['*', '*/*', `${kind}/*`, usualType].includes(type) &&
        patterns.some((pattern) => pattern.test(url)),
    );
    if (!isSupported || !URL.canParse(url)) {
      throw new ProviderFailure(400, 'The provider fetches no URLs; send the media as a data URL');
    }
    return { type: 'file', mediaType: usualType, data: { type: 'url', url: new URL(url) } };
  }

  #assistantParts(message: AssistantMessage) {
    const provider = this.#provider;
    const text = textOf(message.content ?? '');
    const content = message.content ?? '';
    const last = typeof content === 'string' ? message : (content.at(-1) ?? message);
    const options =
      cacheOptions(last, provider) ?? provider.named({ thoughtSignature: signatureOf(message) });
    const texts: LanguageModelV4TextPart[] =
      text === '' && options === undefined
        ? []
        : [{ type: 'text', text, ...given({ providerOptions: options }) }];
    const calls = (message.tool_calls ?? []).map((call): LanguageModelV4ToolCallPart => {
      const { id, function: made } = call;
      this.#toolNames.set(id, made.name);
      const signature = provider.named({ thoughtSignature: signatureOf(call) });
      return {
        type: 'tool-call',
        toolCallId: id,
        toolName: made.name,
        input: parsedJson(made.arguments) ?? {},
        ...given({ providerOptions: cacheOptions(call, provider) ?? signature }),
      };
    });
    return [...this.#reasoningParts(message), ...texts, ...calls];
  }

  /** Blocks with the same index are one part: text, signature and encrypted data. */
  #reasoningParts({
    reasoning_details: details,
    reasoning_content: plain,
  }: AssistantMessage): LanguageModelV4ReasoningPart[] {
    const parts = new Map<unknown, { text: string; options: Record<string, unknown> }>();
    for (const [at, detail] of (details ?? []).entries()) {
      const { text, summary, signature, data, id, index } = detail;
      const key = index ?? at;
      const part = parts.get(key) ?? { text: '', options: {} };
      const more = text ?? summary;
      if (typeof more === 'string') part.text += more;
      Object.assign(
        part.options,
        given({
          signature,
          thoughtSignature: signature,
          redactedData: data,
          redactedContent: data,
          reasoningEncryptedContent: data,
          itemId: id,
        }),
      );
      parts.set(key, part);
    }
    if (parts.size === 0) return plain ? [{ type: 'reasoning', text: plain }] : [];
    return [...parts.values()].map(({ text, options }) => {
      const providerOptions = this.#provider.named(options);
      return { type: 'reasoning', text, ...given({ providerOptions }) };
    });
  }
}

const BASE64_URL = /^data:([\w.+-]+\/[\w.+-]+)(?:;[^,;]+)*;base64,/i;
const AUDIO_TYPES: Readonly<Record<string, string>> = { mp3: 'audio/mpeg', m4a: 'audio/mp4' };

function textPart(text: string): { readonly type: 'text'; readonly text: string } {
  return { type: 'text', text };
}

function textOf(content: TextContent): string {
  return typeof content === 'string' ? content : content.map(({ text }) => text).join('');
}

/** The signature of Gemini in a message or a tool call. */
function signatureOf({ extra_content: extra }: JsonObject): string | undefined {
  const google = isJsonObject(extra) ? extra['google'] : undefined;
  const signature = isJsonObject(google) ? google['thought_signature'] : undefined;
  return typeof signature === 'string' ? signature : undefined;
}
