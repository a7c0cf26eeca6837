/** The chat tab: a conversation and its settings. */
import { signal, useSignal } from '@preact/signals';
import { useEffect, useRef } from 'preact/hooks';
import { chatSamples } from '../code-samples.ts';
import { bytesText, countText, durationText, usdText } from '../format.ts';
import { toast } from '../parts/announce.tsx';
import { Failure } from '../parts/loaded.tsx';
import { SafeLink } from '../parts/values.tsx';
import type { Model } from '../shapes.ts';
import { ChatSettings, type Settings, parametersOf, settings } from './chat-settings.tsx';
import {
  type Attachment,
  type Options,
  type Turn,
  bodyOf,
  clearConversation,
  openConversation,
  regenerate,
  sendMessage,
  stop,
  turns,
} from './conversation.ts';
import { type RequestBody, textIn } from '../request-history.ts';
import { HistoryList, useHistory } from './history.tsx';
import { Markdown } from './markdown.tsx';
import {
  CodeWindow,
  type ModelChoice,
  costText,
  dataUrlOf,
  hasCapability,
  useModelChoice,
} from './parts.tsx';

const draft = signal('');
const attached = signal<readonly Attachment[]>([]);
/** The limit of the server. */
const MAX_FILE_BYTES = 25_000_000;

function optionsOf(model: Model | undefined, { system, search }: Settings): Options {
  return {
    model: model?.id ?? 'default',
    system,
    search,
    parameters: parametersOf(settings.value),
  };
}

export function Chat() {
  const choice = useModelChoice('text');
  const code = useSignal<Readonly<Record<string, unknown>> | undefined>(undefined);
  const isRunning = turns.value.some((turn) => turn.isRunning === true);
  const spent = turns.value.reduce(
    (sum, { cost }) => sum + (cost?.usd ?? 0) + (cost?.diem ?? 0),
    0,
  );
  const options = optionsOf(choice.model, settings.value);
  const history = useHistory('chat');
  const record = (turn: Turn | undefined): void => {
    const { requestId, body, cost, error } = turn ?? {};
    if (requestId === undefined || body === undefined || error !== undefined) return;
    const files = turns.peek().some(({ attachments = [] }) => attachments.length > 0);
    const summary = turns.peek().findLast(({ role }) => role === 'user')?.text ?? '';
    history.add({ summary, body: files ? undefined : body, requestId, cost });
  };
  const restore = (body: RequestBody): void => {
    choice.choose(textIn(body, 'model'));
    const { system, text } = openConversation(body);
    settings.value = { ...settings.peek(), system };
    draft.value = text;
  };
  // Stops the response when the user leaves the page.
  useEffect(() => stop, []);
  const showCode = (): void => {
    const text = draft.value.trim();
    const isDraft = text !== '' || turns.value.length === 0;
    const next: Turn = {
      id: 0,
      role: 'user',
      text: text === '' ? 'Hello' : text,
      attachments: attached.value,
    };
    code.value = bodyOf(isDraft ? [...turns.value, next] : turns.value, options);
  };
  return (
    <div class="chat">
      <section class="conversation" aria-label="Conversation">
        <Turns
          choice={choice}
          again={() => void regenerate(options).then(record)}
          showCode={(body) => (code.value = body)}
        />
        <Composer isRunning={isRunning} model={choice.model} options={options} record={record} />
        <p class="row under-composer">
          <span class="soft num">
            {turns.value.length > 0 && `${usdText(spent)} for this conversation`}
          </span>
          <span class="row end">
            <button type="button" class="small" onClick={showCode}>
              Code
            </button>
            <button
              type="button"
              class="small"
              disabled={turns.value.length === 0}
              onClick={clearConversation}
            >
              New conversation
            </button>
          </span>
        </p>
      </section>
      <ChatSettings choice={choice}>
        <HistoryList history={history} restore={restore} />
      </ChatSettings>
      {code.value !== undefined && (
        <CodeWindow samples={chatSamples(code.value)} close={() => (code.value = undefined)} />
      )}
    </div>
  );
}

interface TurnsProps {
  readonly choice: ModelChoice;
  readonly again: () => void;
  readonly showCode: (body: Readonly<Record<string, unknown>>) => void;
}

function Turns({ choice, again, showCode }: TurnsProps) {
  const box = useRef<HTMLDivElement>(null);
  const isAtEnd = useRef(true);
  const shown = turns.value;
  useEffect(() => {
    const { current } = box;
    if (current !== null && isAtEnd.current) current.scrollTop = current.scrollHeight;
  }, [shown]);
  return (
    <div
      ref={box}
      class="turns"
      role="log"
      aria-label="Messages"
      tabIndex={0}
      onScroll={({ currentTarget: at }) => {
        isAtEnd.current = at.scrollHeight - at.scrollTop - at.clientHeight < 40;
      }}
    >
      {shown.length === 0 && (
        <div class="empty">
          <p class="title">Send a message to {choice.model?.model_spec.name ?? 'a model'}</p>
          <p>The response is streamed, with its tokens and its exact cost.</p>
          <p class="row">
            {STARTERS.map((text) => (
              <button key={text} type="button" class="small" onClick={() => (draft.value = text)}>
                {text}
              </button>
            ))}
          </p>
        </div>
      )}
      {shown.map((turn, at) => (
        <Message
          key={turn.id}
          turn={turn}
          isLast={at === shown.length - 1}
          again={again}
          showCode={showCode}
        />
      ))}
    </div>
  );
}

const STARTERS = [
  'What can you do?',
  'Explain a prepaid balance in two sentences',
  'Write a haiku about receipts',
];

interface MessageProps {
  readonly turn: Turn;
  readonly isLast: boolean;
  readonly again: () => void;
  readonly showCode: (body: Readonly<Record<string, unknown>>) => void;
}

function Message({ turn, isLast, again, showCode }: MessageProps) {
  if (turn.role === 'user') {
    return (
      <article class="message user" aria-label="You">
        <Attachments list={turn.attachments ?? []} />
        {turn.text !== '' && <p class="text">{turn.text}</p>}
      </article>
    );
  }
  const { text, thinking = '', citations = [], error, isRunning = false, body } = turn;
  return (
    <article class="message" aria-label="Response" aria-busy={isRunning}>
      {thinking !== '' && (
        <details class="thinking">
          <summary>{isRunning && text === '' ? 'Reasoning…' : 'Reasoning'}</summary>
          <p class="text">{thinking}</p>
        </details>
      )}
      {text !== '' && <Markdown text={text} citations={citations.length} />}
      {isRunning && text === '' && thinking === '' && (
        <p class="waiting" role="status">
          <span class="unseen">Waiting for the model</span>
        </p>
      )}
      {error !== undefined && <Failure error={error} {...(isLast ? { retry: again } : {})} />}
      {citations.length > 0 && <Citations list={citations} />}
      {!isRunning && (
        <p class="bill num">
          <Bill turn={turn} />
          <span class="row end">
            {turn.requestId !== undefined && error === undefined && (
              <a href={`/console/activity?open=${turn.requestId}`}>Receipt</a>
            )}
            {body !== undefined && (
              <button type="button" class="link" onClick={() => showCode(body)}>
                Code
              </button>
            )}
            {isLast && error === undefined && (
              <button type="button" class="link" onClick={again}>
                Regenerate
              </button>
            )}
          </span>
        </p>
      )}
    </article>
  );
}

function Bill({ turn: { usage, cost, firstTokenMs, tookMs, wasStopped, error } }: { turn: Turn }) {
  const parts = [
    cost === undefined ? undefined : costText(cost),
    usage === undefined
      ? undefined
      : `${countText(usage.prompt_tokens)} in, ${countText(usage.completion_tokens)} out`,
    firstTokenMs === undefined ? undefined : `first token ${durationText(firstTokenMs)}`,
    tookMs === undefined || error !== undefined ? undefined : durationText(tookMs),
    wasStopped === true ? 'stopped' : undefined,
  ];
  return <span>{parts.filter((part) => part !== undefined).join(' · ')}</span>;
}

function Citations({ list }: { list: NonNullable<Turn['citations']> }) {
  return (
    <ol class="citations" aria-label="Sources">
      {list.map(({ title, url }, at) => (
        <li key={`${at} ${url}`}>
          <SafeLink href={url}>{title === undefined || title === '' ? url : title}</SafeLink>
          <span class="soft"> {hostOf(url)}</span>
        </li>
      ))}
    </ol>
  );
}

function hostOf(url: string): string {
  return URL.canParse(url) ? new URL(url).host : '';
}

function Attachments({
  list,
  remove,
}: {
  list: readonly Attachment[];
  remove?: (at: number) => void;
}) {
  if (list.length === 0) return null;
  return (
    <ul class="attachments">
      {list.map(({ name, type, url }, at) => (
        <li key={`${at} ${name}`}>
          {/^data:image\/(?:png|jpeg|webp|gif|avif);/.test(url) && <img src={url} alt="" />}
          <span class="text" title={type}>
            {name}
          </span>
          {remove !== undefined && (
            <button
              type="button"
              class="link"
              aria-label={`Remove ${name}`}
              onClick={() => remove(at)}
            >
              ✕
            </button>
          )}
        </li>
      ))}
    </ul>
  );
}

async function attach(files: readonly File[]): Promise<void> {
  for (const file of files) {
    if (file.size > MAX_FILE_BYTES) {
      toast(
        `${file.name} has ${bytesText(file.size)}. Attach a file of at most ${bytesText(MAX_FILE_BYTES)}`,
        'bad',
      );
      continue;
    }
    const url = await dataUrlOf(file);
    attached.value = [...attached.peek(), { name: file.name, type: file.type, url }];
  }
}

interface ComposerProps {
  readonly isRunning: boolean;
  readonly model: Model | undefined;
  readonly options: Options;
  /** Receives each response that has ended. */
  readonly record: (turn: Turn | undefined) => void;
}

function Composer({ isRunning, model, options, record }: ComposerProps) {
  const picker = useRef<HTMLInputElement>(null);
  const submit = (): void => {
    const text = draft.value.trim();
    if (isRunning || (text === '' && attached.value.length === 0)) return;
    const files = attached.value;
    draft.value = '';
    attached.value = [];
    void sendMessage(text, files, options).then(record);
  };
  const seesImages = hasCapability(model, 'supportsVision');
  return (
    <form
      class="composer"
      onSubmit={(event) => {
        event.preventDefault();
        submit();
      }}
      onDragOver={(event) => event.preventDefault()}
      onDrop={(event) => {
        event.preventDefault();
        void attach([...(event.dataTransfer?.files ?? [])]);
      }}
    >
      <Attachments
        list={attached.value}
        remove={(at) => (attached.value = attached.value.filter((_one, index) => index !== at))}
      />
      <label class="unseen" for="message">
        Message
      </label>
      <textarea
        id="message"
        rows={3}
        placeholder={`Message ${model?.model_spec.name ?? ''}. Enter sends, Shift+Enter adds a line.`}
        value={draft.value}
        onInput={(event) => (draft.value = event.currentTarget.value)}
        onPaste={(event) => {
          const files = [...(event.clipboardData?.files ?? [])];
          if (files.length > 0) void attach(files);
        }}
        onKeyDown={(event) => {
          if (event.key !== 'Enter' || event.shiftKey || event.isComposing) return;
          event.preventDefault();
          submit();
        }}
      />
      <div class="row">
        <button type="button" class="small" onClick={() => picker.current?.click()}>
          Attach {seesImages ? 'images or files' : 'files'}
        </button>
        <input
          ref={picker}
          class="unseen"
          type="file"
          multiple
          tabIndex={-1}
          aria-label="Files for the message"
          onChange={(event) => {
            void attach([...(event.currentTarget.files ?? [])]);
            event.currentTarget.value = '';
          }}
        />
        {isRunning ? (
          <button type="button" class="danger" onClick={stop}>
            Stop
          </button>
        ) : (
          <button type="submit" class="primary">
            Send
          </button>
        )}
      </div>
    </form>
  );
}
