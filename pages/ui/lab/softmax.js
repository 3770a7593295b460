// The batch-softmax loss of a small batch, cell by cell: the browser's copy of bsc_core/losses/explain.py, checked
// against it by a browser test. Matrices are arrays of rows; masks are arrays of rows of booleans.

const SMALLEST_RANGE = 1e-8;

const matrix = (height, width, value) =>
  Array.from({ length: height }, (_, i) => Array.from({ length: width }, (_, j) => value(i, j)));
const turned = (rows) => matrix(rows.length ? rows[0].length : 0, rows.length, (i, j) => rows[j][i]);
const total = (values) => values.reduce((sum, value) => sum + value, 0);
const dot = (left, right) => left.reduce((sum, value, d) => sum + value * right[d], 0);
const inverse = (size, smallest) => (size > smallest ? 1 / size : 0);

function normalise(vectors, normalization) {
  if (normalization === "none") return vectors;
  if (normalization === "l2") {
    return vectors.map((row) => {
      const scale = inverse(Math.sqrt(dot(row, row)), 0);
      return row.map((value) => value * scale);
    });
  }
  const columns = turned(vectors).map((column) => {
    if (normalization === "l2_columns") {
      const scale = inverse(Math.sqrt(dot(column, column)), SMALLEST_RANGE);
      return column.map((value) => value * scale);
    }
    const lowest = Math.min(...column);
    const scale = inverse(Math.max(...column) - lowest, SMALLEST_RANGE);
    const shift = normalization === "minmax_columns" ? lowest : 0;
    return column.map((value) => (value - shift) * scale);
  });
  return turned(columns);
}

// What each chooser should choose and what it may choose; chooser and choice are text ids.
function masks(pairs, settings, positive, chooser, choice) {
  const offered = positive.map((yes) => settings.labelled_negatives || yes);
  const first = choice.map((text, j) => offered[j] && !choice.some((other, k) => k < j && other === text && offered[k]));
  const copy = (i, j) => choice[i] === choice[j];
  const positives = matrix(pairs, pairs, (i, j) => {
    if (!positive[i]) return false;
    if (settings.duplicates !== "multi_positive") return i === j;
    return copy(i, j) || (chooser[i] === chooser[j] && positive[j]);
  });
  const candidates = matrix(pairs, pairs, (i, j) => {
    if (positives[i][j]) return true;
    return settings.duplicates === "merge" ? first[j] && !copy(i, j) : offered[j];
  });
  return { positives, candidates };
}

// One direction: the softmax of each chooser, its loss, and the gradient of the summed losses by the logits.
function direction(logits, settings, positive, chooser, choice) {
  const pairs = logits.length;
  const { positives, candidates } = masks(pairs, settings, positive, chooser, choice);
  const probability = [], push = [], losses = [];
  logits.forEach((row, i) => {
    const allowed = row.filter((_, j) => candidates[i][j]);
    const highest = Math.max(...allowed);
    const exps = row.map((value, j) => (candidates[i][j] ? Math.exp(value - highest) : 0));
    const sum = total(exps);
    const p = exps.map((value) => (sum > 0 ? value / sum : 0));
    const count = positives[i].filter(Boolean).length;
    const share = positives[i].map((yes) => (yes ? 1 / count : 0));
    const attracted = total(row.map((value, j) => (share[j] ? value * share[j] : 0)));
    probability.push(p);
    push.push(p.map((value, j) => (count ? value - share[j] : 0)));
    losses.push(count ? Math.log(sum) + highest - attracted : 0);
  });
  return { probability, push, losses, positives, candidates };
}

function effectiveNegatives({ probability, positives, candidates }) {
  const counts = [];
  probability.forEach((row, i) => {
    const negatives = row.filter((_, j) => candidates[i][j] && !positives[i][j]);
    const sum = total(negatives);
    if (!positives[i].some(Boolean) || !(sum > 0)) return;
    counts.push(Math.exp(-total(negatives.map((p) => (p > 0 ? (p / sum) * Math.log(p / sum) : 0)))));
  });
  return counts.length ? total(counts) / counts.length : 0;
}

// Everything the panels show. batch: queries, documents, labels, query_ids, document_ids; settings: those of the lab.
function explainBatch(batch, settings) {
  const pairs = batch.queries.length;
  const left = normalise(batch.queries, settings.normalization);
  const right = normalise(batch.documents, settings.normalization);
  const similarity = matrix(pairs, pairs, (i, j) => dot(left[i], right[j]));
  const logits = similarity.map((row) => row.map((value) => value / settings.temperature));
  const positive = batch.labels.map((label) => label > settings.threshold);
  const rows = direction(logits, settings, positive, batch.query_ids, batch.document_ids);
  const columns = settings.symmetric
    ? direction(turned(logits), settings, positive, batch.document_ids, batch.query_ids)
    : null;
  const all = settings.average === "batch" && settings.labelled_negatives;
  const count = all ? pairs : Math.max(1, positive.filter(Boolean).length);
  const weight = columns && settings.reduction === "mean" ? 0.5 : 1;
  const gradient = matrix(pairs, pairs, (i, j) => {
    const push = rows.push[i][j] + (columns ? columns.push[j][i] : 0);
    return (push / count) * weight / settings.temperature;
  });
  const first = total(rows.losses) / count;
  const second = columns ? total(columns.losses) / count : null;
  const asking = rows.losses.map((loss, i) => (rows.positives[i].some(Boolean) ? loss : -Infinity));
  return {
    similarity, logits, gradient, rows, columns, positive, count, weight, first, second,
    total: weight * (first + (second ?? 0)),
    effective: effectiveNegatives(rows),
    hardest: positive.some(Boolean) ? asking.indexOf(Math.max(...asking)) : -1,
  };
}
