/** Transcription: a recording on the web, as text. */
import { useSignal } from '@preact/signals';
import { request } from '../api.ts';
import { Field, Refusal, useAction } from '../parts/form.tsx';
import { Copy } from '../parts/show.tsx';
import { Empty } from '../parts/states.tsx';
import { plainSamples } from '../samples.ts';
import { CodeWindow } from './parts.tsx';
import { ReceiptCost } from './receipt-cost.tsx';

interface Result {
  readonly transcript: string;
  readonly lang: string;
  readonly requestId: string;
}

export function Transcription() {
  const url = useSignal('');
  const result = useSignal<Result | undefined>(undefined);
  const isCode = useSignal(false);
  const action = useAction();
  const run = (): void => {
    result.value = undefined;
    void action.run(async () => {
      const body = { url: url.value };
      const answer = await request('/video/transcriptions', { method: 'POST', body });
      const said = (await answer.json()) as Omit<Result, 'requestId'>; // as the route promises
      result.value = { ...said, requestId: answer.headers.get('x-request-id') ?? '' };
    });
  };
  return (
    <div class="split">
      <form
        onSubmit={(event) => {
          event.preventDefault();
          run();
        }}
      >
        <Field
          label="Address of a recording"
          hint="Sound or video that is public; the server fetches it. Charged per second of sound."
        >
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
        {action.isRunning && <p role="status">Listening…</p>}
        <Refusal error={action.error} />
        <p class="row">
          <button type="submit" class="primary" disabled={action.isRunning}>
            Transcribe
          </button>
          <button type="button" onClick={() => (isCode.value = true)}>
            Code
          </button>
        </p>
      </form>
      <section aria-label="Result">
        {result.value === undefined ? (
          <Empty title="What was said" />
        ) : (
          <>
            <p class="transcript text">
              {result.value.transcript === '' ? 'Nothing was understood.' : result.value.transcript}
            </p>
            <p class="bill num row">
              <ReceiptCost requestId={result.value.requestId} />
              <span>language {result.value.lang}</span>
              <span class="row end">
                <Copy text={result.value.transcript} />
              </span>
            </p>
          </>
        )}
      </section>
      {isCode.value && (
        <CodeWindow
          samples={plainSamples('/video/transcriptions', { url: url.value })}
          close={() => (isCode.value = false)}
        />
      )}
    </div>
  );
}
