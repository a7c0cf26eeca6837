/** The background removal tab: compares the image before and after with a slider. */
import { useSignal } from '@preact/signals';
import { useId } from 'preact/hooks';
import { bytesText } from '../format.ts';
import { Drop } from '../parts/file-drop.tsx';
import { Empty, Failure } from '../parts/loaded.tsx';
import { formSamples } from '../code-samples.ts';
import { HistoryList } from './history.tsx';
import { CodeButton, useObjectUrl } from './parts.tsx';
import { Bill, useTrial } from './trial.tsx';

export function Cutout() {
  const file = useSignal<File | undefined>(undefined);
  const { outcome, action, history, send } = useTrial<Blob>('background');
  const take = ([given]: readonly File[]): void => {
    if (given === undefined) return;
    file.value = given;
    const body = new FormData();
    body.set('image', given);
    const read = (response: Response): Promise<Blob> => response.blob();
    send({ path: '/image/background-remove', body, summary: given.name, read });
  };
  const before = useObjectUrl(file.value);
  const after = useObjectUrl(outcome.value?.data);
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
        {outcome.value !== undefined && (
          <Bill of={outcome.value}>
            <a href={after} download={`${(file.value?.name ?? 'image').replace(/\.\w+$/, '')}.png`}>
              Download PNG
            </a>
          </Bill>
        )}
        <HistoryList history={history} />
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
