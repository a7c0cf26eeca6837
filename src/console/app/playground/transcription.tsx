/** Transcription: a dropped file, or a public address, as text. */
import { useSignal } from '@preact/signals';
import { request } from '../api.ts';
import { bytesText } from '../format.ts';
import { Field, Refusal, useAction } from '../parts/form.tsx';
import { Copy } from '../parts/show.tsx';
import { Empty } from '../parts/states.tsx';
import { formSamples, plainSamples } from '../samples.ts';
import { CodeWindow, Drop } from './parts.tsx';
import { ReceiptCost } from './receipt-cost.tsx';

interface Result {
  readonly text: string;
  readonly language: string | undefined;
  readonly requestId: string;
}

export function Transcription() {
  const file = useSignal<File | undefined>(undefined);
  const url = useSignal('');
  const result = useSignal<Result | undefined>(undefined);
  const isCode = useSignal(false);
  const action = useAction();
  const run = (path: string, body: unknown): void => {
    result.value = undefined;
    void action.run(async () => {
      const answer = await request(path, { method: 'POST', body });
      const { text, transcript, lang, language } = (await answer.json()) as Record<string, string>; // of either route
      result.value = {
        text: text ?? transcript ?? '',
        language: lang ?? language,
        requestId: answer.headers.get('x-request-id') ?? '',
      };
    });
  };
  const take = ([given]: readonly File[]): void => {
    if (given === undefined) return;
    file.value = given;
    const form = new FormData();
    form.set('file', given);
    run('/audio/transcriptions', form);
  };
  const samples =
    url.value === ''
      ? formSamples('/audio/transcriptions', {
          field: 'file',
          name: file.value?.name ?? 'talk.mp3',
        })
      : plainSamples('/video/transcriptions', { url: url.value });
  return (
    <div class="split">
      <div>
        <Drop
          label="A recording"
          hint="Sound or video; charged per second of sound."
          accept="audio/*,video/*"
          take={take}
          isBusy={action.isRunning}
        />
        {file.value !== undefined && (
          <p class="soft text">
            {file.value.name}, {bytesText(file.value.size)}
          </p>
        )}
        <form
          onSubmit={(event) => {
            event.preventDefault();
            file.value = undefined;
            run('/video/transcriptions', { url: url.value });
          }}
        >
          <Field label="Or a public address" hint="The server fetches it.">
            {(attributes) => (
              <input
                {...attributes}
                type="url"
                required
                placeholder="https://…"
                value={url.value}
                onInput={(event) => (url.value = event.currentTarget.value)}
              />
            )}
          </Field>
          <p class="row">
            <button type="submit" class="primary" disabled={action.isRunning}>
              Transcribe
            </button>
            <button type="button" onClick={() => (isCode.value = true)}>
              Code
            </button>
          </p>
        </form>
        {action.isRunning && <p role="status">Listening…</p>}
        <Refusal error={action.error} />
      </div>
      <section aria-label="Result">
        {result.value === undefined ? (
          <Empty title="What was said">
            <p>Drop a recording, or name one on the web.</p>
          </Empty>
        ) : (
          <>
            <p class="transcript text">
              {result.value.text === '' ? 'Nothing was understood.' : result.value.text}
            </p>
            <p class="bill num row">
              <ReceiptCost requestId={result.value.requestId} />
              {result.value.language !== undefined && <span>language {result.value.language}</span>}
              <span class="row end">
                <Copy text={result.value.text} />
              </span>
            </p>
          </>
        )}
      </section>
      {isCode.value && <CodeWindow samples={samples} close={() => (isCode.value = false)} />}
    </div>
  );
}
