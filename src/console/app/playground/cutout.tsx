/** The background removal tab: compares the image before and after with a slider. */
import { useSignal } from '@preact/signals';
import { useId } from 'preact/hooks';
import { request } from '../api.ts';
import { bytesText, durationText } from '../format.ts';
import { useAction } from '../parts/form.tsx';
import { Drop } from '../parts/file-drop.tsx';
import { Empty, Failure } from '../parts/loaded.tsx';
import { formSamples } from '../code-samples.ts';
import { CodeButton, ReceiptCost, useObjectUrl } from './parts.tsx';

interface Result {
  readonly after: Blob;
  readonly requestId: string;
  readonly tookMs: number;
}

export function Cutout() {
  const file = useSignal<File | undefined>(undefined);
  const result = useSignal<Result | undefined>(undefined);
  const action = useAction();
  const take = ([given]: readonly File[]): void => {
    if (given === undefined) return;
    file.value = given;
    result.value = undefined;
    void action.run(async () => {
      const form = new FormData();
      form.set('image', given);
      const startedMs = performance.now();
      const response = await request('/image/background-remove', { method: 'POST', body: form });
      result.value = {
        after: await response.blob(),
        requestId: response.headers.get('x-request-id') ?? '',
        tookMs: performance.now() - startedMs,
      };
    });
  };
  const before = useObjectUrl(file.value);
  const after = useObjectUrl(result.value?.after);
  return (
    <div class="split">
      <div>
        <Drop
          label="Image"
          hint="PNG, JPEG, WebP, AVIF, TIFF or GIF up to 25 MB. Charged per image."
          accept="image/*"
          take={take}
          isBusy={action.isRunning}
        />
        {file.value !== undefined && (
          <p class="soft text">
            {file.value.name}, {bytesText(file.value.size)}
          </p>
        )}
        {action.isRunning && <p role="status">Removing the background…</p>}
        {action.error !== undefined && <Failure error={action.error} />}
        <p class="row">
          <CodeButton
            samples={() =>
              formSamples(
                '/image/background-remove',
                { field: 'image', name: file.value?.name ?? 'photo.jpg' },
                'cutout.png',
              )
            }
          />
        </p>
      </div>
      <section aria-label="Result">
        {before === undefined ? (
          <Empty title="Before and after">
            <p>Choose an image of a person or an object to make its background transparent.</p>
          </Empty>
        ) : (
          <Compare before={before} after={after} />
        )}
        {result.value !== undefined && (
          <p class="bill num row">
            <ReceiptCost requestId={result.value.requestId} />
            <span>{durationText(result.value.tookMs)}</span>
            <span class="row end">
              <a
                href={after}
                download={`${(file.value?.name ?? 'image').replace(/\.\w+$/, '')}.png`}
              >
                Download PNG
              </a>
            </span>
          </p>
        )}
      </section>
    </div>
  );
}

function Compare({ before, after }: { before: string; after: string | undefined }) {
  const share = useSignal(50);
  const id = useId();
  return (
    <figure class="compare">
      <div class="stack">
        <img src={before} alt="Before" />
        {after !== undefined && (
          <div class="over" style={{ clipPath: `inset(0 0 0 ${share.value}%)` }}>
            <img src={after} alt="After, with a transparent background" />
          </div>
        )}
      </div>
      {after !== undefined && (
        <figcaption>
          <label for={id}>Before and after</label>
          <input
            id={id}
            type="range"
            min="0"
            max="100"
            value={share.value}
            onInput={(event) => (share.value = Number(event.currentTarget.value))}
          />
        </figcaption>
      )}
    </figure>
  );
}
